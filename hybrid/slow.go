package hybrid

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/runner"
)

// slow decides when the fast path cannot: the key is not in memory, its budget has expired, or its units have run out.
func (l *Limiter) slow(ctx context.Context, key string, n int64, given *account.Plan) (hybridlimit.Result, error) {
	if res, ok := l.decidedBySwitch(n); ok {
		l.logDenial(key, nil, n, &res)
		return res, nil
	}
	if given != nil && l.control.Exactly(given) || given == nil && l.control.Exactly(l.control.Plan()) {
		return l.exact(ctx, key, n, given)
	}
	e, r, res, err := l.terms.LockBy(key, given, nil)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if e == nil {
		return l.exact(ctx, key, n, given)
	}
	if res, ok := static(r, res, n); ok {
		e.Unlock()
		return l.answerUnder(r, key, res, n), nil
	}
	res.Limit = r.Burst
	if n > res.Limit {
		return l.aboveHere(ctx, e, r, key, given, n)
	}
	v, err := l.decide(ctx, e, r, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return l.answerUnder(r, key, l.terms.Fill(res, r, v, n), n), nil
}

// decide decides a call for n units under r. It unlocks the entry.
func (l *Limiter) decide(ctx context.Context, e *keys.Entry, r *account.Plan, n int64) (account.Verdict, error) {
	ev := e.Event()
	v := e.Account.Call(&ev.Conditions, n, ev.Now)
	if v.Action != account.Ask {
		return ev.End(v), nil
	}
	if err := ctx.Err(); err != nil { // units granted to a call that has left may be lost
		ev.End(v)
		return account.Verdict{}, err
	}
	return l.await(ctx, &ev, v, account.NewWaiter(n, r))
}

// await ends an event whose verdict is to ask Redis, and waits for the answer to w.
func (l *Limiter) await(ctx context.Context, ev *keys.Event, v account.Verdict, w *account.Waiter) (account.Verdict, error) {
	e := ev.Entry
	e.Waiters.Add(w)
	itself := v.Sync == account.SyncNow && l.sendsItself(ctx)
	if itself {
		v.Sync = account.SyncNot
	}
	ev.End(v)
	if itself {
		l.hub.engine.Exchange(runner.Here(ctx), e.Tag(), e, l.cfg.MaxWait)
	}
	return l.wait(ctx, e, w, ev.Now, l.cfg.MaxWait)
}

// sendsItself reports whether a waiting call may run the exchange with Redis in its own goroutine. Redis must usually
// answer long before MaxWait, and before the deadline of ctx: a caller that leaves loses what Redis has granted
// meanwhile. Such a call returns with the answer, or at the earlier of these times, even if ctx is cancelled before.
func (l *Limiter) sendsItself(ctx context.Context) bool {
	patience := l.cfg.MaxWait
	if ends, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(ends))
	}
	rtt := l.hub.engine.RTT()
	return rtt > 0 && 4*rtt <= patience && !l.control.Mute()
}

// never returns the denial of a cost that the burst can never hold.
func never(res hybridlimit.Result) hybridlimit.Result {
	res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	return res
}

// wait waits for Redis until most after began. It ends early when ctx ends or the limiter closes. If this process got
// no core at that time, the answer may have arrived and not have been read: the call waits for as long again as the
// timer was late, once, for at most half of most.
func (l *Limiter) wait(ctx context.Context, e *keys.Entry, w *account.Waiter, began int64, most time.Duration) (account.Verdict, error) {
	select {
	case v := <-w.Out:
		return v, nil
	default:
	}
	due := most - time.Duration(l.hub.clock.Now()-began)
	timer := time.NewTimer(due)
	defer timer.Stop()
	for again := true; ; {
		set := time.Now()
		select {
		case v := <-w.Out:
			return v, nil
		case <-timer.C:
			if late := time.Since(set) - max(0, due); again && late > keys.Tick {
				again = false
				due = min(late, most/2)
				timer.Reset(due)
				continue
			}
			return l.timedOut(e, w)
		case <-ctx.Done():
			if v, ok := e.Leave(w); ok {
				return v, nil
			}
			return account.Verdict{}, ctx.Err()
		case <-l.done:
			if v, ok := e.Leave(w); ok {
				return v, nil
			}
			return account.Verdict{}, hybridlimit.ErrClosed
		}
	}
}

// timedOut decides without Redis for a call that has waited long enough. It leaves and decides under one lock,
// because the entry may be forgotten as soon as the call has left.
func (l *Limiter) timedOut(e *keys.Entry, w *account.Waiter) (account.Verdict, error) {
	e.Lock()
	if !w.Leave() {
		e.Unlock()
		return <-w.Out, nil
	}
	if l.control.Closed.Load() {
		e.Unlock()
		return account.Verdict{}, hybridlimit.ErrClosed
	}
	e.AdaptBack(w.Plan, l.hub.clock.Now())
	ev := e.Event()
	return ev.End(e.Account.TimedOut(&ev.Conditions, w.N, ev.Now)), nil
}
