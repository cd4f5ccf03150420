package leased

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// waitingCall is a call that waits for an answer of Redis. The lock of the shard guards it until ready is closed.
type waitingCall struct {
	n     int64 // units; 0: of Drain and Reset
	ready chan struct{}
	done  bool
	res   hybridlimit.Result
}

// end ends the wait of a call.
func (w *waitingCall) end(res hybridlimit.Result) {
	w.res, w.done = res, true
	close(w.ready)
}

// await waits for the answer, at most for MaxWait. Then the fallback decides.
func (l *Limiter) await(ctx context.Context, e *entry, w *waitingCall) (hybridlimit.Result, error) {
	timer := time.NewTimer(l.MaxWait)
	defer timer.Stop()
	select {
	case <-w.ready:
		return w.res, nil
	case <-timer.C:
	case <-ctx.Done():
	case <-l.done:
	}
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if w.done && w.res.Allowed { // it was admitted at this moment
		return w.res, nil
	}
	e.waits = slices.DeleteFunc(e.waits, func(o *waitingCall) bool { return o == w })
	if err := ctx.Err(); err != nil {
		return hybridlimit.Result{}, err
	}
	if l.control.Closed.Load() {
		return hybridlimit.Result{}, hybridlimit.ErrClosed
	}
	if w.done {
		return w.res, nil
	}
	return e.alone(w.n, l.clock.Now()), nil
}

// want returns the units of the calls that wait. The entry is locked.
func (e *entry) want() (units int64) {
	for _, w := range e.waits {
		units += w.n
	}
	return min(units, e.plan.Burst)
}

// serve ends the waits of all calls after an answer, in their order. done: the answer is also to Drain and Reset. The
// entry is locked.
func (e *entry) serve(done bool, now int64) {
	waits := e.waits
	e.waits = nil
	for _, w := range waits {
		switch {
		case w.n > 0:
			res := hybridlimit.Result{Allowed: e.Take(w.n, now), Source: hybridlimit.SourceRedis}
			w.end(e.answer(res, w.n, e.left(now), now))
		case done:
			w.end(hybridlimit.Result{Allowed: true})
		default:
			e.waits = append(e.waits, w)
		}
	}
	e.Served()
}

// forsake ends the waits of all calls without an answer. The entry is locked.
func (e *entry) forsake(now int64) {
	waits := e.waits
	e.waits = nil
	for _, w := range waits {
		if w.n == 0 {
			w.end(hybridlimit.Result{})
		} else {
			w.end(e.alone(w.n, now))
		}
	}
}

// Drain gives the leases of all keys back, and pays what the process owes. It ends with ctx. The limiter is closed. It
// returns an error with the units that Redis does not know of.
func (l *Limiter) Drain(ctx context.Context) error {
	var waits []*waitingCall
	now := l.clock.Now()
	var due []*entry
	l.each(func(e *entry) {
		rate, tokens := e.Leased(now)
		if e.Owes() == 0 && rate == 0 && tokens == 0 || l.rates.env.Broken(e.tag) {
			return
		}
		w := &waitingCall{ready: make(chan struct{})}
		e.leaving, e.waits, waits = true, append(e.waits, w), append(waits, w)
		if !e.queued && !e.Busy() {
			e.queued = true
			due = append(due, e)
		}
	})
	for _, e := range due {
		l.rates.lanes[e.tag].add(e)
	}
	for _, w := range waits {
		select {
		case <-w.ready:
		case <-ctx.Done():
		}
	}
	if _, _, owed := l.Sums(); owed > 0 {
		return fmt.Errorf("hybrid: Shutdown of limiter %q ended with %d units owed that Redis has not acknowledged: %w", l.Name, owed, hybridlimit.ErrUnavailable)
	}
	return nil
}
