package main

import (
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// fleet has the processes that share the limit, and their state. One goroutine owns all of it. Others use do.
type fleet struct {
	store   *store
	log     *chronicle
	send    func(name string, v any)
	watched func() bool // reports whether a page is open

	orders chan func()
	quit   chan struct{}
	done   sync.WaitGroup

	start    time.Time
	settings settings
	slots    []*process
	watch    *watch
	recount  time.Time // when the new watch begins to count; zero: it already counts
	samples  []sample
	last     time.Time // of the last sample
	clock    chartClock
	backAt   time.Time // when the outage ends by itself; zero: it does not
	seq      int64
	state    fleetState // the last state that was sent
	restored *restoring
	members  int64 // the last N on which all processes agreed
	sleeping bool  // no page is open
	gone     ended

	inFlight  *inFlight
	flights   []flightSample
	flightSeq int64
	booked    atomic.Pointer[booked] // the last reading; nil: none yet
	reading   atomic.Bool
}

// ended has the sums of retired processes, so that totals never fall.
type ended struct {
	counts   counts
	stats    map[string][2]int64 // by source: allowed and denied, as counted by the library
	messages int64
	resynced int64
}

var errEnded = errors.New("playground: the fleet has ended")

func newFleet(s *store, send func(string, any), watched func() bool) (*fleet, error) {
	now := time.Now()
	f := &fleet{
		store: s, log: &chronicle{start: now}, send: send, watched: watched,
		orders: make(chan func()), quit: make(chan struct{}),
		start: now, last: now, settings: initial, sleeping: true, gone: ended{stats: map[string][2]int64{}},
		inFlight: newInFlight(initial.Permits),
	}
	f.countAnew(now)
	if err := f.resize(f.settings.Processes); err != nil {
		f.retire(f.slots, 0)
		return nil, err
	}
	f.note(kindFleet, "%d processes share %v and %v through Redis, %s.", f.settings.Processes, f.settings.limit(), f.settings.permits(), s.name())
	f.done.Go(f.run)
	return f, nil
}

// oldLeases is the pause of counting after a change of the limit. Leases of the old limit live for four seconds at
// most.
const oldLeases = 4200 * time.Millisecond

func (f *fleet) close() {
	close(f.quit)
	f.done.Wait()
	f.retire(f.slots, f.grace())
}

// alive yields the processes that have not crashed.
func (f *fleet) alive(yield func(*process) bool) {
	for _, p := range f.slots {
		if !p.crashed && !yield(p) {
			return
		}
	}
}

// do runs an order on the fleet's goroutine, and returns when it is done.
func (f *fleet) do(order func() error) error {
	result := make(chan error, 1)
	select {
	case f.orders <- func() { result <- order() }:
		return <-result
	case <-f.quit:
		return errEnded
	}
}

func (f *fleet) run() {
	timer := time.NewTimer(tickBusy)
	defer timer.Stop()
	idle := false
	for {
		select {
		case order := <-f.orders:
			order()
			f.tell()
			if !idle || !f.busy() && !f.flying() {
				continue
			}
			f.wake(time.Now())
		case <-timer.C:
			f.tick(time.Now())
		case <-f.quit:
			return
		}
		idle = !f.busy() && !f.flying()
		if idle {
			timer.Reset(tickIdle)
		} else {
			timer.Reset(tickBusy)
		}
	}
}

// loaded reports whether the loads make calls.
func (f *fleet) loaded() bool { return f.settings.Running && !f.sleeping }

func (f *fleet) busy() bool { return f.loaded() && f.settings.Load > 0 }

func (f *fleet) note(kind, format string, args ...any) {
	f.send("event", f.log.note(kind, format, args...))
}

// steer divides the load among the running processes.
func (f *fleet) steer() {
	running := 0
	for p := range f.alive {
		if !p.frozen.Load() {
			running++
		}
	}
	each, flights := 0.0, 0.0
	if f.loaded() && running > 0 {
		each = f.settings.Load * float64(f.settings.Rate) / float64(running)
		flights = f.settings.CallLoad * float64(f.settings.Permits) / float64(running)
	}
	for p := range f.alive {
		p.compare.Store(f.settings.Naive)
		p.load.aim(each)
		p.flight.aim(flights, f.settings.callTime())
	}
}

// resize changes the number of processes to n.
func (f *fleet) resize(n int) error {
	for len(f.slots) < n {
		p, err := f.newProcess(len(f.slots) + 1)
		if err != nil {
			return err
		}
		f.slots = append(f.slots, p)
	}
	if len(f.slots) > n {
		f.retire(f.slots[n:], f.grace())
		f.slots = f.slots[:n]
	}
	f.steer()
	return nil
}

func (f *fleet) newProcess(number int) (*process, error) {
	if f.outage() {
		f.watch.disturbed = true
	}
	return startProcess(f, number)
}

// grace returns the time that a process gets to settle. Without Redis it gets none.
func (f *fleet) grace() time.Duration {
	if state, _ := f.store.condition(); state != redisUp {
		return 0
	}
	return 500 * time.Millisecond
}

// retire ends processes in parallel and adds their counts to gone.
func (f *fleet) retire(doomed []*process, grace time.Duration) {
	doomed = slices.DeleteFunc(slices.Clone(doomed), func(p *process) bool { return p.crashed })
	var all sync.WaitGroup
	var unsettled atomic.Int64
	for _, p := range doomed {
		all.Go(func() {
			if !p.end(grace) {
				unsettled.Add(1)
			}
		})
	}
	all.Wait()
	f.watch.unsettled += unsettled.Load()
	for _, p := range doomed {
		c, when := p.tally.take()
		f.watch.waiting.add(when)
		f.gone.counts.add(c, 1)
		f.gone.add(p.limiter.Stats())
		f.gone.messages += p.messages()
		f.gone.resynced += p.limiter.Stats().Resynced
	}
}

func (g *ended) add(s hybrid.Stats) {
	for i, counted := range []map[hybridlimit.Source]int64{s.Allowed, s.Denied} {
		for src, n := range counted {
			both := g.stats[src.String()]
			both[i] += n
			g.stats[src.String()] = both
		}
	}
}

func (f *fleet) cell(at time.Time) int { return int(at.Sub(f.start) / cellTime) }

// countAnew restarts the bounds at the given time. A current outage continues.
func (f *fleet) countAnew(at time.Time) {
	f.recount = at
	f.watch = newWatch(f.settings, f.cell(at))
	if f.outage() {
		f.withoutRedis(at)
	}
}

// tick takes a sample, and looks for changes.
func (f *fleet) tick(now time.Time) {
	if asleep := !f.watched(); asleep != f.sleeping {
		f.sleeping = asleep
		f.steer()
		if !asleep {
			f.wake(now)
			return
		}
		f.note(kindFleet, "No page is open: the load waits for one.")
	}
	f.endOutage(now)
	f.clock.pass(now.Sub(f.last), f.busy() || f.flying())
	f.sampleFlights(now, now.Sub(f.last))
	f.sampleAt(now)
	if !f.sleeping {
		f.readBooked()
	}
	for _, e := range f.log.settle(now) {
		f.send("event", e)
	}
	if !f.recount.IsZero() && !now.Before(f.recount) {
		f.recount = time.Time{}
	}
	f.lookAtMembers()
	f.lookAtMemory(now)
	f.tell()
}

// wake begins a sample after a pause.
func (f *fleet) wake(now time.Time) {
	f.clock.pass(now.Sub(f.last), false)
	f.last = now
}

// sampleAt adds a point to the charts if there were calls or load.
func (f *fleet) sampleAt(now time.Time) {
	state, _ := f.store.condition()
	s := sample{
		At: f.clock.ms(), Span: now.Sub(f.last).Milliseconds(), Redis: state, Rate: f.settings.Rate, Burst: f.settings.Burst,
		Admitted: make([]int64, len(f.slots)), Calls: make([]int64, len(f.slots)),
	}
	f.last = now
	var all placed
	var sum counts
	for p := range f.alive {
		c, when := p.tally.take()
		all.add(when)
		since := c
		since.add(p.before, -1)
		sum.add(since, 1)
		s.Calls[p.number-1], s.Admitted[p.number-1] = since.Offered, since.admitted()
		sent := p.messages()
		s.Messages += sent - p.sent
		p.before, p.sent = c, sent
		f.watch.fleet(f.settings.Processes, p.limiter.Stats().Credit)
	}
	s.Offered, s.Naive, s.Sources = sum.Offered, sum.Naive, sum.bySource()
	f.watch.add(all, f.cell(now))
	if !f.busy() && s.Offered == 0 {
		return // the charts stand still
	}
	f.seq++
	s.Seq = f.seq
	f.samples = latest(append(f.samples, s), maxSamples)
	f.send("sample", s)
}

// tell sends the state if it has changed.
func (f *fleet) tell() {
	s := f.look()
	if !reflect.DeepEqual(s, f.state) {
		f.state = s
		f.send("fleet", s)
	}
}

// lookAtMembers logs when all processes agree on another N.
func (f *fleet) lookAtMembers() {
	var n, credit int64
	for p := range f.alive {
		if p.frozen.Load() {
			continue
		}
		st := p.limiter.Stats()
		if n != 0 && st.Fleet != n {
			return
		}
		n, credit = st.Fleet, st.Credit
	}
	if n != 0 && n != f.members {
		if f.members != 0 {
			f.note(kindFleet, "The heartbeats count %d processes now. The credit of each is %d units.", n, credit)
		}
		f.members = n
	}
}
