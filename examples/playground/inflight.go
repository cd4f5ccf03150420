package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// inFlight counts the calls in flight of the whole fleet, and compares the shared ones with the limit. A call counts
// after it was admitted and until its permit is released, so the number of calls is never overstated.
type inFlight struct {
	mu     sync.Mutex
	calls  map[*flight][]*inFlightCall // of the processes that have not ended
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

func (r *running) sum() int64 { return r.Shared + r.Alone + r.Outlived }

func newInFlight(limit int64) *inFlight {
	return &inFlight{calls: map[*flight][]*inFlightCall{}, limit: limit, last: "No call was sent yet."}
}

func (a *inFlight) join(f *flight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[f] = nil
}

// leave ends all calls of a process that ends.
func (a *inFlight) leave(f *flight) {
	a.mu.Lock()
	ended := a.calls[f]
	delete(a.calls, f)
	for _, c := range ended {
		a.now.add(c, -1)
	}
	a.mu.Unlock()
	release(ended)
}

// release is called without a.mu. After a crash it has no effect on Redis.
func release(ended []*inFlightCall) {
	for _, c := range ended {
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
	if _, there := a.calls[c.of]; !there {
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

// finish ends the calls of a process whose time is over.
func (a *inFlight) finish(f *flight, now time.Time) {
	a.mu.Lock()
	var ended, left []*inFlightCall
	for _, c := range a.calls[f] {
		if now.Before(c.ends) {
			left = append(left, c)
		} else {
			ended = append(ended, c)
			a.now.add(c, -1)
		}
	}
	if len(ended) > 0 {
		a.calls[f] = left
	}
	a.mu.Unlock()
	release(ended)
}

func (a *inFlight) any(f *flight) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls[f]) > 0
}

// outlive finds the calls that outlive the membership of their process. It is called with a.mu held, and before each
// event that can make a process a member again.
func (a *inFlight) outlive() {
	for f, calls := range a.calls {
		if len(calls) == 0 || f.limiter.Stats().Member {
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
	if !a.since.IsZero() {
		return
	}
	a.most.Shared, a.most.Alone, a.most.Outlived = max(a.most.Shared, a.now.Shared), max(a.most.Alone, a.now.Alone), max(a.most.Outlived, a.now.Outlived)
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
