package main

import (
	"context"
	"errors"
	"math"
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
}

func newFlight(p *process, l *hybrid.ConcurrencyLimiter, all *inFlight) *flight {
	f := &flight{number: p.number, limiter: l, all: all, load: newLoad(), frozen: &p.frozen, stop: p.stop}
	all.join(f)
	return f
}

// aim sets the load: the number of calls that it would run at once without a limit, and the mean time that they take.
func (f *flight) aim(running float64, callTime time.Duration) {
	f.callTime.Store(int64(callTime))
	f.load.aim(running / callTime.Seconds())
}

// run makes the calls of the load, and ends calls whose time is over.
func (f *flight) run() {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := 0; ; {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		if f.load.none() && !f.all.any(f) {
			if f.load.rest(tick, f.stop) {
				return
			}
			continue
		}
		now := time.Now()
		calls := f.load.due(now)
		if f.frozen.Load() {
			continue
		}
		f.all.finish(f, now)
		for range calls {
			i++
			f.call(spread(time.Duration(f.callTime.Load()), i), nil)
		}
	}
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

// end ends all calls, because the process ends.
func (f *flight) end() { f.all.leave(f) }
