package keys

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/runner"
)

// Decide decides a call for n units under r. It unlocks the entry.
func (t *Terms) Decide(ctx context.Context, e *Entry, r *account.Plan, n int64) (account.Verdict, error) {
	ev := e.Event()
	v := e.Account.Call(&ev.Conditions, n, ev.Now)
	if v.Action != account.Ask {
		return ev.End(v), nil
	}
	if err := ctx.Err(); err != nil { // units granted to a call that has left may be lost
		ev.End(v)
		return account.Verdict{}, err
	}
	return t.Await(ctx, &ev, v, account.NewWaiter(n, r))
}

// Await ends an event whose verdict is to ask Redis, and waits for the answer to w.
func (t *Terms) Await(ctx context.Context, ev *Event, v account.Verdict, w *account.Waiter) (account.Verdict, error) {
	e := ev.Entry
	e.Waiters.Add(w)
	itself := v.Sync == account.SyncNow && t.sendsItself(ctx)
	if itself {
		v.Sync = account.SyncNot
	}
	ev.End(v)
	if itself {
		t.Engine.Exchange(runner.Here(ctx), e.Tag(), e, t.MaxWait)
	}
	return t.Wait(ctx, e, w, ev.Now, t.MaxWait)
}

// sendsItself reports whether a waiting call may run the exchange with Redis in its own goroutine. Redis must usually
// answer long before MaxWait, and before the deadline of ctx: a caller that leaves loses what Redis has granted
// meanwhile. Such a call returns with the answer, or at the earlier of these times, even if ctx is cancelled before.
func (t *Terms) sendsItself(ctx context.Context) bool {
	patience := t.MaxWait
	if ends, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(ends))
	}
	rtt := t.Engine.RTT()
	return rtt > 0 && 4*rtt <= patience && !t.Control.Mute()
}

// Wait waits for Redis until most after began. It ends early when ctx ends or the limiter closes. If this process got
// no core at that time, the answer may have arrived and not have been read: the call waits for as long again as the
// timer was late, once, for at most half of most.
func (t *Terms) Wait(ctx context.Context, e *Entry, w *account.Waiter, began int64, most time.Duration) (account.Verdict, error) {
	select {
	case v := <-w.Out:
		return v, nil
	default:
	}
	due := most - time.Duration(t.Clock.Now()-began)
	timer := time.NewTimer(due)
	defer timer.Stop()
	for again := true; ; {
		set := time.Now()
		select {
		case v := <-w.Out:
			return v, nil
		case <-timer.C:
			if late := time.Since(set) - max(0, due); again && late > Tick {
				again = false
				due = min(late, most/2)
				timer.Reset(due)
				continue
			}
			return t.timedOut(e, w)
		case <-ctx.Done():
			if v, ok := e.Leave(w); ok {
				return v, nil
			}
			return account.Verdict{}, ctx.Err()
		case <-t.Done:
			if v, ok := e.Leave(w); ok {
				return v, nil
			}
			return account.Verdict{}, hybridlimit.ErrClosed
		}
	}
}

// timedOut decides without Redis for a call that has waited long enough. It leaves and decides under one lock,
// because the entry may be forgotten as soon as the call has left.
func (t *Terms) timedOut(e *Entry, w *account.Waiter) (account.Verdict, error) {
	e.Lock()
	if !w.Leave() {
		e.Unlock()
		return <-w.Out, nil
	}
	if t.Control.Closed.Load() {
		e.Unlock()
		return account.Verdict{}, hybridlimit.ErrClosed
	}
	e.AdaptBack(w.Plan, t.Clock.Now())
	ev := e.Event()
	return ev.End(e.Account.TimedOut(&ev.Conditions, w.N, ev.Now)), nil
}
