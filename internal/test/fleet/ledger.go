package fleet

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// ledger adds up the debits of Redis. A state counts its debits since its creation, so it must be read before it can be
// lost. It is read each second, which is shorter than any TTL after the last debit, and before each event that removes
// it. If Redis loses writes, a merge can create a state anew, so the state is also read before each script. Two scripts
// that come at the same moment can hide debits even so: see reborn.
type ledger struct {
	mu      sync.Mutex // the server's goroutines harvest too
	w       *world
	names   []string // of the keys' states
	last    []debits
	removed []bool // the world has removed the state since it was read
	total   int64  // of states that no longer exist
	reborn  int    // states that a merge created anew: their last debits may be unknown
}

type debits struct{ born, since int64 }

const harvestEvery = time.Second

func newLedger(w *world) *ledger {
	l := &ledger{w: w, last: make([]debits, len(w.keys)), removed: make([]bool, len(w.keys))}
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	for _, k := range w.keys {
		l.names = append(l.names, names.State(names.Tag(k), limiterName, k))
	}
	return l
}

func (l *ledger) harvest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.setClock()
	for i, name := range l.names {
		d, ok := l.read(i, name)
		if !ok {
			continue
		}
		if was := l.last[i]; d.born != was.born {
			l.total += was.since
			if was.born != 0 && !l.removed[i] && l.w.s.forgets() {
				l.reborn++
			}
			l.removed[i] = false
		}
		l.last[i] = d
	}
}

// gone notes that the world has removed states.
func (l *ledger) gone(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, name := range l.names {
		l.removed[i] = l.removed[i] || slices.Contains(names, name)
	}
}

// read returns the debits of a state. It returns false if there is no state: it has not been created, or it has expired
// after its debits were read.
func (l *ledger) read(i int, name string) (debits, bool) {
	if l.w.s.Limit.Algorithm == hybridlimit.AlgSlidingLog {
		return l.readLog(i, name)
	}
	raw, err := l.w.bubble.Mini.Get(name)
	if err != nil {
		return debits{}, false
	}
	state, ok := wire.DecodeState(raw)
	if !ok {
		l.w.violate("the state of %q is %q", l.w.keys[i], raw)
	}
	return debits{state.Born, state.Since}, ok
}

// readLog is read for a log, which counts in its entries: "<total> <cost>". A log's creation is the time of its first
// entry. That entry stays for a Period, so only a Period below harvestEvery could hide a creation.
func (l *ledger) readLog(i int, name string) (debits, bool) {
	entries, err := l.w.bubble.Mini.ZMembers(name)
	if err != nil || len(entries) == 0 {
		return debits{}, false
	}
	var first, firstCost, total, cost int64
	_, err1 := fmt.Sscanf(entries[0], "%d %d", &first, &firstCost)
	_, err2 := fmt.Sscanf(entries[len(entries)-1], "%d %d", &total, &cost)
	at, err3 := l.w.bubble.Mini.ZScore(name, entries[0])
	if err := errors.Join(err1, err2, err3); err != nil {
		l.w.violate("the log of %q is %q: %v", l.w.keys[i], entries, err)
		return debits{}, false
	}
	d := debits{l.last[i].born, total}
	if first == firstCost {
		d.born = int64(at)
	}
	return d, true
}

func (l *ledger) debited() int64 {
	sum := l.total
	for _, d := range l.last {
		sum += d.since
	}
	return sum
}

// forgets reports whether Redis loses writes. After that, a merge with an older view may create a state anew that Redis
// still has: the view does not know of the units that other processes have returned since.
func (s Scenario) forgets() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool {
		return f.Kind == Wipe || f.Kind == EvictKey || f.Kind == Mistype || f.Kind == KillRedis ||
			f.Kind == ClockStep && f.Size.Abs() > time.Second
	})
}

// exact reports whether the debits of Redis must equal the accounts of its processes, to the unit. They may differ if
// Redis may have debited units while no process heard of them:
//
//   - a process crashed and had a sync in flight;
//   - an exact call, which is sent only once, was not answered. (Asks without an envelope and without an answer are
//     counted: Stats.Uncertain);
//   - Redis forgot an envelope and applied a repeated batch again.
//
// In these cases the debits may only be larger. After Redis lost a window, they may be larger by the units that came
// back since: a state takes back units that an earlier state has debited (see elsewhere).
func (s Scenario) exact() bool {
	var forgetful bool
	// A call that opens a connection takes four round trips.
	once := s.Kind == RedisExact || s.MaxKeys > 0 || s.asksAlways()
	unheard := once && 4*s.Latency >= maxWait
	for _, f := range s.Faults {
		switch f.Kind {
		case Crash, KillRedis:
			return false
		case LoseReplies, Duplicate, LateReplies, Slow, PauseProcess, HangRedis:
			unheard = true
		case Wipe, EvictKey, Mistype:
			forgetful = true
		case ClockStep:
			forgetful = forgetful || f.Size > time.Second
			if s.asksAlways() && f.Size < 0 {
				return false // a log that moves back with the clock looks like another log
			}
		}
	}
	return !unheard || !once && !forgetful
}

// elsewhere returns the largest number of returned units whose debit may be in a state that Redis has lost. A window
// takes units of a lease back after a merge has restored its count. A bucket takes back only units of its own ledger.
func (s Scenario) elsewhere(returned int64) int64 {
	if s.forgets() && (s.Limit.Algorithm == hybridlimit.AlgFixedWindow || s.Limit.Algorithm == hybridlimit.AlgSlidingWindow) {
		return returned
	}
	return 0
}

// asksAlways reports whether the hybrid limiter asks Redis for each call in any mode.
func (s Scenario) asksAlways() bool { return s.Limit.Algorithm == hybridlimit.AlgSlidingLog }

// giveUp records that a process ended, in order or by a crash, and that a sync may have been in flight. The process
// counted the leased units as lost that the sync returned. Redis takes them back if the sync still arrives. lost is the
// units that the process counts as lost.
func (w *world) giveUp(lost int64, inOrder bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.givenUp += lost
	w.loose = w.loose || inOrder
}

// settle ends the fleet after the last fault and closes the books.
func (w *world) settle(r *Report) {
	left := make(chan struct{})
	go func() { w.leaving.Wait(); close(left) }()
	for leaving := true; leaving; { // Shutdown waits for calls in flight of neighbours
		select {
		case <-left:
			leaving = false
		case <-time.After(harvestEvery):
			w.ledger.harvest()
		}
	}
	for range 60 { // much longer than a breaker stays open
		time.Sleep(500 * time.Millisecond)
		w.ledger.harvest()
		if w.quiet() {
			break
		}
	}
	for _, p := range w.procs {
		if p.ended.Load() {
			continue
		}
		if p.neighbours != nil {
			p.neighbours.Land()
		}
		if err := p.leave(); err != nil {
			w.violate("p%d at the end: %v", p.number, err)
		}
		w.ledger.harvest()
	}
	if !w.s.Kind.real() {
		return
	}
	w.checkNeighbours()
	r.Debited = w.ledger.debited()
	var admitted, returned, uncertain, lost int64
	for _, p := range w.procs {
		for _, v := range p.views {
			s := v.Stats()
			admitted += s.Admitted
			uncertain += s.Uncertain
			returned += s.Refunded
			lost += s.Lost
			r.Accounts += w.balance(p, s)
			r.Dropped += s.Dropped
		}
	}
	if told := w.told(); told != admitted {
		w.violate("callers were told %d units, limiters count %d", told, admitted)
	}
	r.Reborn = w.ledger.reborn
	fewer := w.givenUp
	if w.s.forgets() {
		// A sync with a return is sent again until its answer comes. If Redis has lost the envelope and the state in
		// between, the return is too late, and its units count as lost. But Redis took them back the first time.
		fewer += lost
	}
	if d := r.Debited - r.Accounts; d < -fewer && r.Reborn == 0 || d > w.s.elsewhere(returned)+uncertain && w.s.exact() && !w.loose {
		w.violate("Redis debited %d units, processes account for %d", r.Debited, r.Accounts)
	}
	w.leftovers()
}

func (w *world) quiet() bool {
	return !slices.ContainsFunc(w.procs, func(p *process) bool {
		return !p.ended.Load() && slices.ContainsFunc(p.views, func(v *hybrid.Limiter) bool { return v.Stats().Owed > 0 })
	})
}

// balance checks the equation of hybrid.Stats and returns its right side.
func (w *world) balance(p *process, s hybrid.Stats) int64 {
	want := s.Admitted + s.Expired + s.Held + s.Lost - s.Owed - s.Dropped - s.Forgiven
	if got := s.Paid + s.Granted - s.Refunded; got != want {
		w.violate("p%d: paid %d + granted %d, but admitted %d + expired %d + held %d + lost %d - owed %d - dropped %d - forgiven %d = %d",
			p.number, s.Paid, s.Granted, s.Admitted, s.Expired, s.Held, s.Lost, s.Owed, s.Dropped, s.Forgiven, want)
	}
	if s.Held != 0 || s.Owed != 0 {
		w.violate("p%d holds %d units and owes %d after its end", p.number, s.Held, s.Owed)
	}
	return want
}

// leftovers finds keys that would never expire.
func (w *world) leftovers() {
	mini := w.bubble.Mini
	w.setClock()
	var longest time.Duration
	for _, k := range mini.Keys() {
		ttl := mini.TTL(k)
		if ttl <= 0 {
			w.violate("key %q has no TTL", k)
		}
		longest = max(longest, ttl)
	}
	mini.FastForward(longest + time.Millisecond)
	if left := mini.Keys(); len(left) > 0 {
		w.violate("%d keys outlive their TTL: %q", len(left), left[0])
	}
}
