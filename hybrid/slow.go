package hybrid

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// slow decides where the word did not: a key that is not in memory, an epoch
// that has passed, units that ran out.
func (l *Limiter) slow(ctx context.Context, key string, n int64, given *rules) (hybridlimit.Result, error) {
	if res, ok := l.decidedBySwitch(n); ok {
		l.logDenial(key, nil, n, &res)
		return res, nil
	}
	if given != nil && l.exactly(given) || given == nil && l.exactly(l.rules.Load()) {
		return l.exact(ctx, key, n, given)
	}
	e, r, res, err := l.lockBy(key, given, func() (place, error) { return l.placeUnder(key, given) })
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if e == nil {
		return l.exact(ctx, key, n, given)
	}
	if res, ok := r.static(res, n); ok {
		e.unlock()
		return l.answerUnder(r, key, res, n), nil
	}
	res.Limit = r.limit.BurstSize()
	if n > res.Limit {
		return l.aboveHere(ctx, e, r, key, given, n)
	}
	var w *waiter
	v := l.event(e, func(t terms, now int64, broken bool) verdict {
		if broken {
			return e.state.fallback(&t, n, now)
		}
		v := e.state.decide(&t, n, now)
		if v.action != ask {
			return v
		}
		if e.state.tooLate(&t, now) {
			v = e.state.without(&t, n, now, broken)
			v.sync = syncNow // Redis is still to be asked
			return v
		}
		w = &waiter{n: n, by: r, out: make(chan verdict, 1)}
		e.waiters = append(e.waiters, w)
		return v
	})
	if w != nil {
		if v, err = l.wait(ctx, e, w); err != nil {
			return hybridlimit.Result{}, err
		}
	}
	return l.answerUnder(r, key, l.fill(res, r, v, n), n), nil
}

// event runs one event of the step on a locked entry, unlocks it, and queues
// the sync that it wants. The step gets its own copy of the terms: a pointer to
// them would put them on the heap, where each call in 30 or so finds its page
// full, which took 25 µs.
func (l *Limiter) event(e *entry, step func(t terms, now int64, broken bool) verdict) verdict {
	epoch, now := l.hub.clock.Stamp()
	t := l.terms(e.rules.Load(), now)
	broken := l.alone(e.tag())
	if broken {
		t.share.ends = e.windowEnd(&t, now)
	}
	e.begin(now)
	v := step(t, now, broken)
	e.end(&t, epoch, broken, now)
	v.left, v.ends = e.remaining(&t, now), e.windowEnd(&t, now)
	e.unlock()
	e.sync(v.sync)
	return v
}

// never is a denial of a cost that the burst can never hold.
func never(res hybridlimit.Result) hybridlimit.Result {
	res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	return res
}

func (l *Limiter) fill(res hybridlimit.Result, r *rules, v verdict, n int64) hybridlimit.Result {
	res.Source = v.source
	res.Remaining = max(0, v.left)
	if v.action == admit {
		res.Allowed, res.Granted, res.Delay = true, n, time.Duration(v.delay)
	} else {
		res.RetryAfter = max(time.Microsecond, time.Duration(v.retry))
	}
	res.ResetAfter = l.resetAfter(r, v.left, v.ends)
	return res
}

// lock returns the key's entry with its lock held, making it if need be, under
// the limit that came with the call or else its own; nil when memory is full
// of keys that still owe.
func (l *Limiter) lock(key string, given *rules) (*entry, hybridlimit.Result, error) {
	e, _, res, err := l.lockBy(key, given, func() (place, error) { return l.placeUnder(key, given) })
	return e, res, err
}

// lockAt is lock for a key whose place is known: no callback of the user runs.
func (l *Limiter) lockAt(key string, at place) (*entry, hybridlimit.Result, error) {
	e, _, res, err := l.lockBy(key, at.rules, func() (place, error) { return at, nil })
	return e, res, err
}

// lockBy is both, and says under which rules the call is decided. They are the
// entry's, but for a limit that counts nothing: of that an entry takes nothing
// over, since what it owes is still to be paid under the limit by which it was
// counted.
func (l *Limiter) lockBy(key string, given *rules, find func() (place, error)) (*entry, *rules, hybridlimit.Result, error) {
	res := hybridlimit.Result{Policy: l.cfg.Name}
	for {
		e := l.store.lookup(key)
		if e == nil {
			at, err := find()
			if err != nil {
				return nil, nil, res, err
			}
			made := newEntry(l, key)
			made.node.Tag = uint16(at.tag)
			made.rules.Store(at.rules)
			made.comeIn(at.rules, l.hub.clock.Now())
			var owing []*entry
			e, owing = l.store.add(made, l.hub.clock.Now())
			for _, o := range owing {
				o.sync(syncNow) // pay, so that they can go
			}
			if e == nil {
				return nil, nil, res, nil
			}
		}
		want := given
		if want == nil && l.backToOwn(e.rules.Load()) {
			at, err := l.place(key)
			if err != nil {
				return nil, nil, res, err
			}
			want = at.rules
		}
		e.lock()
		switch {
		case l.closed.Load(): // asked under the lock: see writeOff
			e.unlock()
			return nil, nil, res, hybridlimit.ErrClosed
		case !e.dead:
			if want == nil && l.outdated(e.rules.Load()) {
				want = l.rules.Load()
			}
			switch {
			case want == nil:
				want = e.rules.Load()
			case !static(want.limit):
				e.adapt(want, l.hub.clock.Now())
			}
			return e, want, res, nil
		}
		e.unlock()
	}
}

// wait waits for Redis: for MaxWait, and not beyond ctx or the limiter.
func (l *Limiter) wait(ctx context.Context, e *entry, w *waiter) (verdict, error) {
	timer := time.NewTimer(l.cfg.MaxWait)
	defer timer.Stop()
	select {
	case v := <-w.out:
		return v, nil
	case <-timer.C:
		return l.timedOut(e, w)
	case <-ctx.Done():
		if v, ok := e.leave(w); ok {
			return v, nil
		}
		return verdict{}, ctx.Err()
	case <-l.done:
		if v, ok := e.leave(w); ok {
			return v, nil
		}
		return verdict{}, hybridlimit.ErrClosed
	}
}

// timedOut decides without Redis for a call that has waited long enough. It
// leaves and decides under one lock: once it has left, the entry may go.
func (l *Limiter) timedOut(e *entry, w *waiter) (verdict, error) {
	e.lock()
	if w.done {
		e.unlock()
		return <-w.out, nil
	}
	w.gone = true
	if l.closed.Load() {
		e.unlock()
		return verdict{}, hybridlimit.ErrClosed
	}
	e.adapt(w.by, l.hub.clock.Now())
	return l.event(e, func(t terms, now int64, broken bool) verdict {
		return e.state.without(&t, w.n, now, broken)
	}), nil
}
