package hybrid

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// This file has direct calls: Redis makes the decision, with one message for each. They are for ModeExact, for sliding
// logs, and for keys for which memory has no room.

// exact asks Redis to decide this call. The message is sent once and has no envelope.
func (l *Limiter) exact(ctx context.Context, key string, n int64, given *account.Plan) (hybridlimit.Result, error) {
	return l.exactRange(ctx, key, n, n, given)
}

// exactRange is exact for up to n units. It denies the call if Redis has fewer than least units. least is 1 or n.
func (l *Limiter) exactRange(ctx context.Context, key string, least, n int64, given *account.Plan) (hybridlimit.Result, error) {
	at, err := l.terms.PlaceUnder(key, given)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res := hybridlimit.Result{Limit: at.Plan.Burst, Policy: l.cfg.Name}
	if res, ok := static(at.Plan, res, n); ok {
		return l.answerUnder(at.Plan, key, res, n), nil
	}
	if least > res.Limit {
		res, _ = l.aboveAsked(ctx, at)
		return l.answerUnder(at.Plan, key, never(res), n), nil
	}
	if r, now, ok := l.refused(key, at, least); ok {
		v := account.Verdict{Action: account.Deny, Source: hybridlimit.SourceDenyCache, Retry: r.Until - now, Left: r.Left}
		res = l.terms.Fill(res, at.Plan, v, n)
		res.ResetAfter = time.Duration(max(0, r.Reset-now))
		return l.answerUnder(at.Plan, key, res, n), nil
	}
	sent := l.hub.clock.Now()
	ans, _, ok := l.askNow(ctx, at, algo.Op{Asks: []int64{n}, Partial: least < n})
	if !ok {
		if err := ended(ctx); err != nil {
			return hybridlimit.Result{}, err
		}
		return l.exactFallback(key, at, res, least)
	}
	v := said(at.Plan, ans, least)
	if v.Action == account.Admit {
		n = ans.Granted
	} else {
		l.refuse(key, at, least, ans, sent, l.hub.clock.Now())
	}
	res = l.terms.Fill(res, at.Plan, v, n)
	res.ResetAfter = time.Duration(at.Plan.Reset(ans)) * time.Microsecond
	return l.answerUnder(at.Plan, key, res, n), nil
}

// said returns the verdict of an answer: admitted if Redis granted least units or more.
func said(p *account.Plan, ans wire.Answer, least int64) account.Verdict {
	v := account.Verdict{
		Action: account.Deny, Source: hybridlimit.SourceRedis, Reason: account.Refused, Retry: ans.Retry * 1000, Left: p.Units(ans.Level),
	}
	if ans.Granted >= least {
		v.Action, v.Reason, v.Delay = account.Admit, account.Granted, ans.Delay*1000
	}
	return v
}

// askNow is askWithin for a decision, which waits for MaxWait.
func (l *Limiter) askNow(ctx context.Context, at keys.Place, op algo.Op) (ans wire.Answer, now int64, ok bool) {
	return l.askWithin(ctx, at, op, l.cfg.MaxWait)
}

// patience returns the time for which Reserve and Wait wait for Redis. They may take longer than a decision: a Redis in
// another zone that needs longer than MaxWait is no outage for them, and a new connection takes several round trips.
func (l *Limiter) patience() time.Duration {
	if l.cfg.MaxWait < 0 {
		return l.cfg.MaxWait
	}
	return max(l.cfg.MaxWait, 4*l.hub.cfg.SyncTimeout)
}

// askWithin sends a message with one op, once and without an envelope, and waits for the answer. It returns the answer,
// and the time at which Redis gave it, in µs of Redis time. Without an answer ok is false, and Granted is the number of
// units that Redis may have granted: none if nothing was sent.
func (l *Limiter) askWithin(ctx context.Context, at keys.Place, op algo.Op, wait time.Duration) (ans wire.Answer, now int64, ok bool) {
	if l.control.Mute() || ended(ctx) != nil {
		return ans, 0, false
	}
	l.hub.heart.Pace.Event(at.Plan.Full)
	call, ok := l.hub.breaker(at.Tag).Begin()
	if !ok || wait < 0 {
		if ok {
			call.End(0, context.Canceled)
		}
		return ans, 0, false
	}
	if at.Plan.Kind == algo.KindLog {
		op.ID = hybridlimit.RequestID(ctx)
	}
	op.Since, op.Floor = at.Plan.InForce(l.hub.clock.Now()), at.Plan.Floor
	l.hub.clock.Begin()
	defer l.hub.clock.End()
	sent := time.Now()
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if l.control.Exactly(at.Plan) && op.View == (algo.View{}) {
		op.View = l.viewOf(at)
	}
	reply, err := l.hub.caller.Batch(bounded, wire.Envelope{}, []wire.Op{{
		Key: l.terms.InRedis(at), Limit: at.Plan.Limit, Op: op,
	}})
	l.hub.exacts.Add(1)
	l.terms.Count.Ops.Add(1)
	took := time.Since(sent)
	blamed := l.blame(ctx, err)
	if bounded.Err() != nil && !l.hub.long(wait) {
		blamed = context.Canceled
	}
	call.End(l.hub.engine.Without(took), blamed)
	if err != nil {
		if !errors.Is(blamed, context.Canceled) { // a failure of Redis
			l.hub.failed.Add(1)
		}
		ans.Granted = op.Asked()
		l.terms.Count.Uncertain.Add(ans.Granted)
		return ans, 0, false
	}
	ans = reply.Answers[0]
	l.terms.Count.Debited.Add(ans.Granted)
	l.hub.clocks.Heard(at.Tag, reply.Now, l.hub.clock.At(sent), l.hub.clock.At(sent.Add(took)))
	l.terms.Found(at.Plan.Bucket, ans.Level)
	ans = at.Plan.Seen(ans)
	if l.control.Exactly(at.Plan) {
		l.seen(at, ans, reply.Now, l.hub.clock.At(sent))
	}
	return ans, reply.Now, true
}

// viewOf returns the view of a key that Redis alone decides. An op carries it, so that a Redis that has lost the key
// learns of it.
func (l *Limiter) viewOf(at keys.Place) (v algo.View) {
	e := l.terms.Store.Get(at.Key)
	if e == nil || at.Plan.Kind == algo.KindLog {
		return v
	}
	e.Lock()
	defer e.Unlock()
	if p := e.Plan.Load(); !e.Dead() && p.Limit == at.Plan.Limit {
		v = e.Account.Told(&account.Conditions{Bucket: p.Bucket, Window: p.Window, Floor: p.Floor})
	}
	return v
}

// seen notes the answer of a direct call for a key that Redis alone decides, so that a fallback begins with what was
// left. A key for which memory has no room begins with a full share.
func (l *Limiter) seen(at keys.Place, ans wire.Answer, redisNow, sent int64) {
	e, _, err := l.terms.LockAt(at.Key, at)
	if e == nil || err != nil {
		return
	}
	defer e.Unlock()
	now := l.hub.clock.Now()
	c := e.Conditions(e.Plan.Load(), now)
	e.Account.DirectSeen(&c, account.Answer{Answer: ans, RedisNow: redisNow, Sent: sent}, now)
}

// ended returns the error of a context that has ended, also if its timer is late: a client of Redis notices the
// deadline itself.
func ended(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// long reports whether a call that has waited so long without an answer is evidence against Redis. A MaxWait near the
// round trip says nothing: it is short, or Redis is far, or this process gets no core.
func (h *Hub) long(wait time.Duration) bool {
	return wait-h.engine.Late() >= max(5*time.Millisecond, 4*h.engine.RTT(), 4*time.Duration(h.heart.Trip.Load()))
}

// blame returns the error for the breaker. If the caller's ctx has ended, or the limiter is closed, a failure is no
// evidence about Redis, and blame returns context.Canceled.
func (l *Limiter) blame(ctx context.Context, err error) error {
	if err != nil && (ended(ctx) != nil || l.control.Closed.Load()) {
		return context.Canceled
	}
	return err
}

// exactFallback answers a call that Redis did not answer.
func (l *Limiter) exactFallback(key string, at keys.Place, res hybridlimit.Result, n int64) (hybridlimit.Result, error) {
	v, err := l.withoutRedis(key, at, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return l.answerUnder(at.Plan, key, l.terms.Fill(res, at.Plan, v, n), n), nil
}

// withoutRedis decides locally for a call that Redis did not answer.
func (l *Limiter) withoutRedis(key string, at keys.Place, n int64) (account.Verdict, error) {
	e, _, err := l.terms.LockAt(key, at)
	switch {
	case err != nil:
		return account.Verdict{}, err
	case e == nil && l.control.Closed.Load(): // with an entry, lockAt has checked this under its lock
		return account.Verdict{}, hybridlimit.ErrClosed
	case e != nil:
		ev := e.Event()
		return ev.End(e.Account.TimedOut(&ev.Conditions, n, ev.Now)), nil
	}
	return l.terms.WithoutMemory(key, at, n), nil
}

// refused returns Redis's last refusal for a key, and the time. It reports whether that refusal still denies n units
// under this limit.
func (l *Limiter) refused(key string, at keys.Place, n int64) (r account.Refusal, now int64, ok bool) {
	if l.control.Exact() {
		return r, 0, false // ModeExact asks Redis for every call
	}
	e := l.terms.Store.Get(key)
	if e == nil {
		return r, 0, false
	}
	e.Lock()
	defer e.Unlock()
	r, now = e.Account.Refusal(), l.hub.clock.Now()
	return r, now, !e.Dead() && e.Plan.Load().Limit == at.Plan.Limit && r.Holds(n, now)
}

// refuse notes a refusal of n units that was received at now. An earlier refusal of at most n units stays while it
// holds. Only logs need this: ModeExact asks every time.
func (l *Limiter) refuse(key string, at keys.Place, n int64, ans wire.Answer, sent, now int64) {
	if l.control.Exact() || at.Plan.Kind != algo.KindLog {
		return
	}
	e, _, err := l.terms.LockAt(key, at)
	if e == nil || err != nil {
		return // memory has no room for the refusal: Redis is asked again
	}
	defer e.Unlock()
	e.Account.NoteRefusal(account.Refusal{
		N: n, Until: sent + ans.Retry*1000, Relook: now + clock.Jitter(account.MaxView),
		Left: at.Plan.Units(ans.Level), Reset: now + at.Plan.Reset(ans)*1000,
	}, now)
}

// accept forgets the refusal of a key, because units were given back after it.
func (l *Limiter) accept(key string) {
	if e := l.terms.Store.Get(key); e != nil {
		e.Lock()
		defer e.Unlock()
		e.Account.Accept()
	}
}

// The rest of this file decides calls that cost more than the burst, which are always denied. Such a denial still
// reports the units left. They come from the estimate in memory. For a key without a view they come from Redis, which
// is asked about once per account.MaxView.

// aboveHere denies n units of a locked entry and unlocks the entry.
func (l *Limiter) aboveHere(ctx context.Context, e *keys.Entry, r *account.Plan, key string, given *account.Plan, n int64) (hybridlimit.Result, error) {
	res := hybridlimit.Result{Limit: r.Burst, Policy: l.cfg.Name}
	ev := e.Event()
	now, was := ev.Now, e.Account.Refusal()
	known := e.Account.Viewed() || ev.Conditions.Broken
	v := ev.End(account.Verdict{})
	if known {
		if res.Remaining = keys.Remaining(v); res.Remaining == 0 { // a call for one unit would be denied: see keys.Terms.Fill
			v.Left = min(v.Left, 0)
		}
		res.ResetAfter = l.terms.ResetAfter(r, v.Left, v.Ends)
		return l.answerUnder(r, key, never(res), n), nil
	}
	owed := r.Burst - v.Left // not in Redis's answer
	if was.Holds(n, now) {
		res.Remaining, res.ResetAfter = was.Left, time.Duration(max(0, was.Reset-now))
	} else {
		at, err := l.terms.PlaceUnder(key, given)
		if err != nil {
			return hybridlimit.Result{}, err
		}
		var ok bool
		if res, ok = l.aboveAsked(ctx, at); ok {
			l.noteAbove(e, r, res)
		} else {
			res.Remaining = r.Burst
		}
	}
	if owed != 0 {
		res.ResetAfter = l.terms.ResetAfter(r, res.Remaining-owed, v.Ends)
		res.Remaining = max(0, res.Remaining-owed)
	}
	return l.answerUnder(r, key, never(res), n), nil
}

// aboveAll returns the denial of the first part that Redis decides and that costs more than its burst. It reports false
// if there is no such part. Parts of a shadow limit do not count.
func aboveAll(ctx context.Context, parts []*part) (res hybridlimit.Result, ok bool) {
	for _, p := range parts {
		if !p.exactly || p.N <= p.at.Plan.Burst || p.Limiter.control.Shadow.Load() {
			continue
		}
		p.plan = p.at.Plan
		one, _ := p.Limiter.aboveAsked(ctx, p.at)
		p.res = p.Limiter.tally(never(one), p.N)
		return p.res, true
	}
	return res, false
}

// aboveAsked asks Redis for the units left of a key. Without an answer it reports false, and no units left.
func (l *Limiter) aboveAsked(ctx context.Context, at keys.Place) (res hybridlimit.Result, ok bool) {
	res = hybridlimit.Result{Limit: at.Plan.Burst, Policy: l.cfg.Name}
	ans, _, ok := l.askNow(ctx, at, algo.Op{})
	if ok {
		res.Remaining = at.Plan.Units(ans.Level)
		res.ResetAfter = time.Duration(at.Plan.Reset(ans)) * time.Microsecond
	}
	return res, ok
}

// noteAbove keeps the answer of Redis for the next calls that cost more than the burst.
func (l *Limiter) noteAbove(e *keys.Entry, r *account.Plan, res hybridlimit.Result) {
	now := l.hub.clock.Now()
	e.Lock()
	defer e.Unlock()
	if !e.Dead() && e.Plan.Load().Limit == r.Limit {
		e.Account.NoteAbove(account.Refusal{
			N: r.Burst + 1, Until: int64(hybridlimit.Never), Relook: now + clock.Jitter(account.MaxView),
			Left: res.Remaining, Reset: now + int64(res.ResetAfter),
		}, now)
	}
}
