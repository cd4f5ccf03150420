package hybrid

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/runner"
)

// slow decides when the fast path cannot: the key is not in memory, its budget has expired, or its units have run
// out.
func (l *Limiter) slow(ctx context.Context, key string, n int64, given *account.Plan) (hybridlimit.Result, error) {
	if res, ok := l.decidedBySwitch(n); ok {
		l.logDenial(key, nil, n, &res)
		return res, nil
	}
	if given != nil && l.control.Exactly(given) || given == nil && l.control.Exactly(l.control.Plan()) {
		return l.exact(ctx, key, n, given)
	}
	e, r, res, err := l.lockBy(key, given, nil)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if e == nil {
		return l.exact(ctx, key, n, given)
	}
	if res, ok := static(r, res, n); ok {
		e.unlock()
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
	return l.answerUnder(r, key, l.fill(res, r, v, n), n), nil
}

// decide decides a call for n units under r. It unlocks the entry.
func (l *Limiter) decide(ctx context.Context, e *entry, r *account.Plan, n int64) (account.Verdict, error) {
	ev := e.event()
	v := e.account.Call(&ev.conditions, n, ev.now)
	if v.Action != account.Ask {
		return ev.end(v), nil
	}
	if err := ctx.Err(); err != nil { // units granted to a call that has left may be lost
		ev.end(v)
		return account.Verdict{}, err
	}
	return l.await(ctx, &ev, v, account.NewWaiter(n, r))
}

// await ends an event whose verdict is to ask Redis, and waits for the answer to w.
func (l *Limiter) await(ctx context.Context, ev *event, v account.Verdict, w *account.Waiter) (account.Verdict, error) {
	e := ev.e
	e.waiters.Add(w)
	itself := v.Sync == account.SyncNow && l.sendsItself(ctx)
	if itself {
		v.Sync = account.SyncNot
	}
	ev.end(v)
	if itself {
		l.hub.engine.Exchange(runner.Here(ctx), e.tag(), e, l.cfg.MaxWait)
	}
	return l.wait(ctx, e, w, ev.now, l.cfg.MaxWait)
}

// sendsItself reports whether a waiting call may run the exchange with Redis in its own goroutine. Redis must usually answer
// long before MaxWait, and before the deadline of ctx: a caller that leaves loses what Redis has granted meanwhile. Such a call
// returns with the answer, or at the earlier of these times, even if ctx is cancelled before.
func (l *Limiter) sendsItself(ctx context.Context) bool {
	patience := l.cfg.MaxWait
	if ends, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(ends))
	}
	rtt := l.hub.engine.RTT()
	return rtt > 0 && 4*rtt <= patience && !l.control.Mute()
}

// event is one event of a locked entry, from event to end.
type event struct {
	e          *entry
	conditions account.Conditions
	epoch      uint64
	now        int64 // ns
}

// event begins an event. Call it with the entry locked.
func (e *entry) event() (ev event) {
	ev.e = e
	ev.epoch, ev.now = e.lim.hub.clock.Stamp()
	e.setConditions(&ev.conditions, e.plan.Load(), ev.now)
	e.begin(ev.now)
	return ev
}

// end ends the event, unlocks the entry, and queues the sync that the verdict asks for. It adds to the verdict the
// fields that the account cannot know.
func (ev *event) end(v account.Verdict) account.Verdict {
	e := ev.e
	e.end(&ev.conditions, ev.epoch, ev.now)
	e.describe(&v, &ev.conditions, ev.now)
	e.unlock()
	e.sync(v.Sync)
	return v
}

// describe adds the units left and the end of the window to a verdict. Call it under e.mu.
func (e *entry) describe(v *account.Verdict, c *account.Conditions, now int64) {
	v.Left, v.Barred, v.Ends = e.account.Remaining(c, now), e.account.Barred(c, now), e.windowEnd(c, now)
}

// remaining returns Result.Remaining of a verdict.
func remaining(v account.Verdict) int64 { return max(0, v.Left-v.Barred) }

// never returns the denial of a cost that the burst can never hold.
func never(res hybridlimit.Result) hybridlimit.Result {
	res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	return res
}

// fill completes the Result of a call for n units. To a caller that is denied, fewer than n units are left: by the view there may be
// more, but those are in the hands of other processes, or it is their turn to ask.
func (l *Limiter) fill(res hybridlimit.Result, r *account.Plan, v account.Verdict, n int64) hybridlimit.Result {
	res.Source = v.Source
	res.Remaining = remaining(v)
	if v.Action == account.Admit {
		res.Allowed, res.Granted, res.Delay = true, n, time.Duration(v.Delay)
	} else {
		res.RetryAfter = max(time.Microsecond, time.Duration(v.Retry))
		res.Remaining, v.Left = min(res.Remaining, n-1), min(v.Left, n-1)
	}
	res.ResetAfter = l.resetAfter(r, v.Left, v.Ends)
	return res
}

// lock returns the locked entry of the key, and makes it if necessary. The entry gets the limit of the call, or else
// the key's own. lock returns nil when memory is full of keys that owe.
func (l *Limiter) lock(key string, given *account.Plan) (*entry, hybridlimit.Result, error) {
	e, _, res, err := l.lockBy(key, given, nil)
	return e, res, err
}

// lockAt is lock for a key whose place is known. It runs no callback of the user.
func (l *Limiter) lockAt(key string, at place) (*entry, hybridlimit.Result, error) {
	e, _, res, err := l.lockBy(key, at.plan, &at)
	return e, res, err
}

// lockBy implements lock and lockAt. known is the place of the key, or nil. lockBy also returns the plan under which the
// call is decided. This is the entry's plan, except for a limit that counts nothing. An entry never adopts such a
// limit: its owed units must be paid under the limit by which they were counted.
func (l *Limiter) lockBy(key string, given *account.Plan, known *place) (*entry, *account.Plan, hybridlimit.Result, error) {
	res := hybridlimit.Result{Policy: l.cfg.Name}
	var again renewal
	for {
		var at place // with the answer of LimitFor, if there is a new one
		if known != nil {
			at = *known
		}
		e := l.store.lookup(key)
		if e == nil {
			var err error
			if known == nil {
				at, err = l.placeUnder(key, given)
			}
			if err != nil {
				return nil, nil, res, err
			}
			made := newEntry(l, key)
			made.node.Tag = uint16(at.tag)
			made.plan.Store(at.plan)
			now := l.hub.clock.Now()
			var owing []*entry
			e, owing = l.store.add(made, now)
			for _, o := range owing {
				o.sync(account.SyncNow) // they must pay before they can be evicted
			}
			switch {
			case e == nil:
				return nil, nil, res, nil
			case e != made && known == nil: // the key has come in meanwhile, with another answer
				at = place{}
			}
		}
		want := given
		if want == nil && l.control.RevertsToOwn(e.plan.Load()) {
			var err error
			if at, err = l.place(key); err != nil {
				return nil, nil, res, err
			}
			want = at.plan
		}
		e.lock()
		switch {
		case l.control.Closed.Load(): // checked under the lock: see writeOff
			e.unlock()
			return nil, nil, res, hybridlimit.ErrClosed
		case e.dead():
			e.unlock()
		case want == nil && !at.from.Asked && l.renews(e, key, &again): // the entry is not locked any more
		default:
			return e, l.settleOn(e, want, at, &again), res, nil
		}
	}
}

// settleOn returns the plan under which a call is decided, and gives it to the entry if it counts. want is the plan of
// the call, or nil. Call it under e.mu.
func (l *Limiter) settleOn(e *entry, want *account.Plan, at place, again *renewal) *account.Plan {
	switch {
	case at.from.Asked:
		want = e.own(at, l.hub.clock.Now())
	case again.answers(e):
		want = e.own(again.at, l.hub.clock.Now())
	case want == nil && l.control.Outdated(e.plan.Load()):
		want = l.control.PlanOf(e.name)
	}
	switch {
	case want == nil:
		return e.standing()
	case !account.Static(want.Limit):
		e.adapt(want, l.hub.clock.Now())
	}
	return want
}

// wait waits for Redis until most after began. It ends early when ctx ends or the limiter closes. If this process got no core at
// that time, the answer may have arrived and not have been read: the call waits for as long again as the timer was late, once, for at
// most half of most.
func (l *Limiter) wait(ctx context.Context, e *entry, w *account.Waiter, began int64, most time.Duration) (account.Verdict, error) {
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
			if late := time.Since(set) - max(0, due); again && late > tick {
				again = false
				due = min(late, most/2)
				timer.Reset(due)
				continue
			}
			return l.timedOut(e, w)
		case <-ctx.Done():
			if v, ok := e.leave(w); ok {
				return v, nil
			}
			return account.Verdict{}, ctx.Err()
		case <-l.done:
			if v, ok := e.leave(w); ok {
				return v, nil
			}
			return account.Verdict{}, hybridlimit.ErrClosed
		}
	}
}

// timedOut decides without Redis for a call that has waited long enough. It leaves and decides under one lock,
// because the entry may be forgotten as soon as the call has left.
func (l *Limiter) timedOut(e *entry, w *account.Waiter) (account.Verdict, error) {
	e.lock()
	if !w.Leave() {
		e.unlock()
		return <-w.Out, nil
	}
	if l.control.Closed.Load() {
		e.unlock()
		return account.Verdict{}, hybridlimit.ErrClosed
	}
	e.adaptBack(w.Plan, l.hub.clock.Now())
	ev := e.event()
	return ev.end(e.account.TimedOut(&ev.conditions, w.N, ev.now)), nil
}
