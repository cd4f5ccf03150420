package hybrid

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/lua"
)

// slow decides where the word did not: a key that is not in memory, an epoch
// that has passed, units that ran out.
func (l *Limiter) slow(ctx context.Context, key string, n int64, given *rules) (hybridlimit.Result, error) {
	if l.cfg.Mode == ModeExact {
		return l.exact(ctx, key, n, given)
	}
	e, res, err := l.lock(key, given)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if e == nil {
		return l.exact(ctx, key, n, given)
	}
	r := e.rules.Load()
	res.Limit = r.limit.BurstSize()
	if n > res.Limit {
		e.mu.Unlock()
		return l.answer(never(res), n), nil
	}
	var w *waiter
	v := l.event(e, func(t *terms, now int64, broken bool) verdict {
		if broken {
			return e.state.fallback(t, n, now)
		}
		v := e.state.decide(t, n, now)
		if v.action != ask {
			return v
		}
		if e.state.tooLate(t, now) {
			v = e.state.without(t, n, now, broken)
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
	return l.answer(l.fill(res, r, v, n), n), nil
}

// event runs one event of the step on a locked entry, unlocks it, and queues
// the sync that it wants.
func (l *Limiter) event(e *entry, step func(t *terms, now int64, broken bool) verdict) verdict {
	epoch, now := l.hub.clock.stamp()
	t := l.terms(e.rules.Load(), now)
	broken := l.hub.broken(e.tag)
	e.begin(now)
	v := step(&t, now, broken)
	e.end(&t, epoch, broken, now)
	v.left = e.remaining(&t, now)
	e.mu.Unlock()
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
	res.Remaining = v.left
	if v.action == admit {
		res.Allowed, res.Granted = true, n
	} else {
		res.RetryAfter = max(time.Microsecond, time.Duration(v.retry))
	}
	res.ResetAfter = l.resetAfter(r, res.Remaining)
	return res
}

// lock returns the key's entry with its lock held, making it if need be, under
// the limit that came with the call or else its own; nil when memory is full
// of keys that still owe.
func (l *Limiter) lock(key string, given *rules) (*entry, hybridlimit.Result, error) {
	return l.lockBy(key, given, func() (place, error) { return l.placeUnder(key, given) })
}

// lockAt is lock for a key whose place is known: no callback of the user runs.
func (l *Limiter) lockAt(key string, at place) (*entry, hybridlimit.Result, error) {
	return l.lockBy(key, at.rules, func() (place, error) { return at, nil })
}

func (l *Limiter) lockBy(key string, given *rules, find func() (place, error)) (*entry, hybridlimit.Result, error) {
	res := hybridlimit.Result{Policy: l.cfg.Name}
	for {
		e := l.store.get(key)
		if e == nil {
			at, err := find()
			if err != nil {
				return nil, res, err
			}
			made := &entry{lim: l, place: at}
			made.rules.Store(at.rules)
			made.node.Item = made
			var owing []*entry
			e, owing = l.store.add(key, made, l.hub.clock.now())
			for _, o := range owing {
				o.sync(syncNow) // pay, so that they can go
			}
			if e == nil {
				return nil, res, nil
			}
		}
		want := given
		// Back to its own: a call brought the last one, or SetLimit has
		// replaced what LimitFor gave it too.
		if r := e.rules.Load(); want == nil && (r.from == fromCall || l.cfg.LimitFor != nil && l.outdated(r)) {
			at, err := l.place(key)
			if err != nil {
				return nil, res, err
			}
			want = at.rules
		}
		e.mu.Lock()
		switch {
		case l.closed.Load(): // asked under the lock: see writeOff
			e.mu.Unlock()
			return nil, res, hybridlimit.ErrClosed
		case !e.dead:
			if want == nil && l.outdated(e.rules.Load()) {
				want = l.rules.Load()
			}
			if want != nil {
				e.adapt(want, l.hub.clock.now())
			}
			return e, res, nil
		}
		e.mu.Unlock()
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
	e.mu.Lock()
	if w.done {
		e.mu.Unlock()
		return <-w.out, nil
	}
	w.gone = true
	if l.closed.Load() {
		e.mu.Unlock()
		return verdict{}, hybridlimit.ErrClosed
	}
	e.adapt(w.by, l.hub.clock.now())
	return l.event(e, func(t *terms, now int64, broken bool) verdict {
		return e.state.without(t, w.n, now, broken)
	}), nil
}

// exact asks Redis for this very call: ModeExact, and keys that find memory
// full of keys that still owe. It is sent once and without an envelope.
func (l *Limiter) exact(ctx context.Context, key string, n int64, given *rules) (hybridlimit.Result, error) {
	at, err := l.placeUnder(key, given)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res := hybridlimit.Result{Limit: at.rules.limit.BurstSize(), Policy: l.cfg.Name}
	if n > res.Limit {
		return l.answer(never(res), n), nil
	}
	ans, ok := l.askNow(ctx, at, algo.Op{Asks: []int64{n}})
	if !ok {
		if err := ctx.Err(); err != nil {
			return hybridlimit.Result{}, err
		}
		return l.exactFallback(key, res, n, given)
	}
	v := verdict{
		action: deny, source: hybridlimit.SourceRedis, retry: ans.Retry * 1000, left: at.rules.bucket.Units(ans.Level),
	}
	if ans.Granted == n {
		v.action = admit
	}
	return l.answer(l.fill(res, at.rules, v, n), n), nil
}

// askNow sends one op by itself, once and without an envelope.
func (l *Limiter) askNow(ctx context.Context, at place, op algo.Op) (lua.Answer, bool) {
	wait := l.cfg.MaxWait
	call, ok := l.hub.breaker(at.tag).Begin()
	if !ok || wait < 0 {
		if ok {
			call.End(0, context.Canceled)
		}
		return lua.Answer{}, false
	}
	sent := time.Now()
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	reply, err := l.hub.runner.Batch(bounded, lua.Envelope{}, []lua.Op{{
		Key: at.key, Limit: at.rules.limit, Op: op,
	}})
	l.hub.exacts.Add(1)
	l.count.ops.Add(1)
	took := time.Since(sent)
	if err != nil && (ctx.Err() != nil || l.closed.Load()) {
		err = context.Canceled // the caller's end says nothing of Redis
	}
	call.End(took, err)
	if err != nil {
		return lua.Answer{}, false
	}
	l.count.debited.Add(reply.Answers[0].Granted)
	l.found(at.rules.bucket, reply.Answers[0].Level)
	return reply.Answers[0], true
}

// exactFallback decides locally for a call that Redis did not answer.
func (l *Limiter) exactFallback(key string, res hybridlimit.Result, n int64, given *rules) (hybridlimit.Result, error) {
	if l.closed.Load() {
		return hybridlimit.Result{}, hybridlimit.ErrClosed
	}
	e, _, err := l.lock(key, given)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	if e == nil { // and no memory to count it in
		l.count.overflow.Add(1)
		res.Source = hybridlimit.SourceFallback
		if res.Allowed = l.cfg.Fallback == FallbackAllowAll; res.Allowed {
			res.Granted = n
			l.count.dropped.Add(n)
		} else {
			res.RetryAfter = max(time.Microsecond, l.cfg.SyncInterval)
		}
		return l.answer(res, n), nil
	}
	r := e.rules.Load()
	v := l.event(e, func(t *terms, now int64, broken bool) verdict { return e.state.without(t, n, now, broken) })
	return l.answer(l.fill(res, r, v, n), n), nil
}
