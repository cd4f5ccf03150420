package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

const (
	flightName = "calls" // of the limiters of calls in flight
	// flightWait is the time for which a call waits for a permit: long enough to be seen on the page.
	flightWait = time.Second
	// maxAsking is the largest number of calls of a process that wait at once. The load drops further ones.
	maxAsking = 64
)

// flight has the calls in flight of one process. They take only time. A paused process begins and ends none.
type flight struct {
	number  int
	limiter *hybrid.ConcurrencyLimiter
	all     *inFlight
	load    *load
	frozen  *atomic.Bool
	stop    <-chan struct{}

	callTime atomic.Int64 // ns, of the load
	asking   atomic.Int64 // calls without an answer yet
	asks     sync.WaitGroup
	left     bool // the process has ended; guarded by all.mu
}

func newFlight(p *process, l *hybrid.ConcurrencyLimiter, all *inFlight) *flight {
	return &flight{number: p.number, limiter: l, all: all, load: newLoad(), frozen: &p.frozen, stop: p.stop}
}

// aim sets the load: the number of calls that it would run at once without a limit, and the mean time that they take.
func (f *flight) aim(running float64, callTime time.Duration) {
	f.callTime.Store(int64(callTime))
	f.load.aim(running / callTime.Seconds())
}

// run makes the calls of the load, and ends calls whose time is over.
func (f *flight) run() {
	i := 0
	f.load.run(f.stop, func() bool { return f.all.of(f).sum() == 0 }, func(now time.Time, calls int) {
		if f.frozen.Load() {
			return
		}
		f.all.finish(f, now)
		for range calls {
			i++
			f.call(spread(time.Duration(f.callTime.Load()), i), nil)
		}
	})
}

// spread returns the time of call i: half to one and a half of the mean. Calls of equal times would begin and end in
// step. Multiples of the golden ratio are spread evenly.
func spread(mean time.Duration, i int) time.Duration {
	_, part := math.Modf(float64(i) * math.Phi)
	return time.Duration((0.5 + part) * float64(mean))
}

// call begins a call that takes the given time, and does not wait for it. told gets the answer in words; it may be nil.
func (f *flight) call(takes time.Duration, told func(string)) {
	if f.asking.Add(1) > maxAsking {
		f.asking.Add(-1)
		return
	}
	f.asks.Go(func() {
		defer f.asking.Add(-1)
		began := time.Now()
		permit, res, err := f.limiter.Acquire(context.Background(), hotKey)
		if errors.Is(err, hybridlimit.ErrClosed) { // the process has ended
			return
		}
		now := time.Now()
		admitted := f.all.note(res, err)
		if told != nil {
			told(explainFlight(f, takes, now.Sub(began), res, err))
		}
		if admitted {
			f.all.begin(&inFlightCall{of: f, permit: permit, ends: now.Add(takes), alone: res.Source == hybridlimit.SourceFallback})
			f.load.rouse()
		}
	})
}

// inFlight counts the calls in flight of the whole fleet, and compares the shared ones with the limit. A call counts
// after it was admitted and until its permit is released, so the number of calls is never overstated.
type inFlight struct {
	mu     sync.Mutex
	calls  map[*flight][]*inFlightCall
	now    running
	most   running // at once, since counting began
	limit  int64
	since  time.Time // when counting begins after a change of the limit; zero: it counts
	counts counts
	last   string // the answer to the last call that a page has sent
}

// inFlightCall is a call in flight.
type inFlightCall struct {
	of       *flight
	permit   hybridlimit.Permit
	ends     time.Time
	alone    bool // admitted by the fallback
	outlived bool // its process was no member of the fleet while it ran, so others may have its permit
}

// running is a number of calls in flight. The limit is about shared calls only: see hybrid.ConcurrencyLimiter.
type running struct {
	Shared   int64 `json:"shared"`
	Alone    int64 `json:"alone"`    // of the fallback
	Outlived int64 `json:"outlived"` // shared ones that have outlived the membership of their process
}

func (r *running) add(c *inFlightCall, n int64) {
	switch {
	case c.alone:
		r.Alone += n
	case c.outlived:
		r.Outlived += n
	default:
		r.Shared += n
	}
}

func (r running) sum() int64 { return r.Shared + r.Alone + r.Outlived }

func newInFlight(limit int64) *inFlight {
	return &inFlight{calls: map[*flight][]*inFlightCall{}, limit: limit, last: "No call was sent yet."}
}

// leave ends all calls of a process that ends. After a crash that has no effect on Redis.
func (a *inFlight) leave(f *flight) {
	a.mu.Lock()
	f.left = true
	a.mu.Unlock()
	a.end(f, func(*inFlightCall) bool { return true })
}

// finish ends the calls of a process whose time is over.
func (a *inFlight) finish(f *flight, now time.Time) {
	a.end(f, func(c *inFlightCall) bool { return !now.Before(c.ends) })
}

func (a *inFlight) end(f *flight, over func(*inFlightCall) bool) {
	var ended []*inFlightCall
	a.mu.Lock()
	a.calls[f] = slices.DeleteFunc(a.calls[f], func(c *inFlightCall) bool {
		if !over(c) {
			return false
		}
		ended = append(ended, c)
		a.now.add(c, -1)
		return true
	})
	if len(a.calls[f]) == 0 {
		delete(a.calls, f)
	}
	a.mu.Unlock()
	for _, c := range ended { // without the lock
		c.permit.Release()
	}
}

func (a *inFlight) note(res hybridlimit.Result, err error) (admitted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts.note(res, err)
}

// begin counts an admitted call. A call of a process that has ended meanwhile ends at once.
func (a *inFlight) begin(c *inFlightCall) {
	a.mu.Lock()
	if c.of.left {
		a.mu.Unlock()
		c.permit.Release()
		return
	}
	a.calls[c.of] = append(a.calls[c.of], c)
	a.now.add(c, 1)
	if a.now.Shared > a.limit {
		a.outlive()
	}
	a.record()
	a.mu.Unlock()
}

// outlive finds the calls that outlive the membership of their process. It is called with a.mu held, and before each
// event that can make a process a member again.
func (a *inFlight) outlive() {
	for f, calls := range a.calls {
		if f.limiter.Stats().Member {
			continue
		}
		for _, c := range calls {
			a.now.add(c, -1)
			c.outlived = true
			a.now.add(c, 1)
		}
	}
}

func (a *inFlight) record() {
	if a.since.IsZero() {
		a.most.Shared, a.most.Alone = max(a.most.Shared, a.now.Shared), max(a.most.Alone, a.now.Alone)
		a.most.Outlived = max(a.most.Outlived, a.now.Outlived)
	}
}

// look looks for calls that outlive the membership of their process, and for the end of the calls that an earlier limit
// has admitted.
func (a *inFlight) look(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outlive()
	if !a.since.IsZero() && !now.Before(a.since) && a.now.Shared <= a.limit {
		a.since, a.most = time.Time{}, a.now
	}
	a.record()
}

// change sets the limit. Counting begins at the given time, and after the running calls fit the new limit: they may go
// on.
func (a *inFlight) change(limit int64, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit, a.since, a.most = limit, at, running{}
}

// countAnew restarts the count of the calls at once.
func (a *inFlight) countAnew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outlive()
	a.most = a.now
}

func (a *inFlight) tell(last string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = last
}

// of returns the running calls of a process.
func (a *inFlight) of(f *flight) (r running) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls[f] {
		r.add(c, 1)
	}
	return r
}

// bound compares the most shared calls at once with the limit. It is called with a.mu held.
func (a *inFlight) bound() bound {
	b := bound{Name: "permits", Measured: float64(a.most.Shared), Allowed: float64(a.limit), Why: fmt.Sprintf("%d concurrent", a.limit)}
	b.judge()
	if a.most.Alone > 0 {
		b.Why += fmt.Sprintf("; not counted: up to %d of the fallback", a.most.Alone)
	}
	if a.most.Outlived > 0 {
		b.Why += fmt.Sprintf("; not counted: up to %d of processes that were cut off for longer than 1.8 s", a.most.Outlived)
	}
	return b
}
