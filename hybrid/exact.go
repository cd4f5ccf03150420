package hybrid

import (
	"context"
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// This file is decisions that Redis makes, one message each: ModeExact, logs,
// and keys that find memory full.

// exact asks Redis for this very call: ModeExact, and keys that find memory
// full of keys that still owe. It is sent once and without an envelope.
func (l *Limiter) exact(ctx context.Context, key string, n int64, given *rules) (hybridlimit.Result, error) {
	return l.exactRange(ctx, key, n, n, given)
}

// exactRange is exact for as many of n units as there are, and for least of
// them where they are fewer than that: for 1 or for n.
func (l *Limiter) exactRange(ctx context.Context, key string, least, n int64, given *rules) (hybridlimit.Result, error) {
	at, err := l.placeUnder(key, given)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res := hybridlimit.Result{Limit: at.rules.limit.BurstSize(), Policy: l.cfg.Name}
	if res, ok := at.rules.static(res, n); ok {
		return l.answerUnder(at.rules, key, res, n), nil
	}
	if least > res.Limit {
		res, _ = l.aboveAsked(ctx, at)
		return l.answerUnder(at.rules, key, never(res), n), nil
	}
	if r, now, ok := l.refused(key, at, least); ok {
		v := verdict{action: deny, source: hybridlimit.SourceDenyCache, retry: r.until - now, left: r.left}
		res = l.fill(res, at.rules, v, n)
		res.ResetAfter = time.Duration(max(0, r.reset-now))
		return l.answerUnder(at.rules, key, res, n), nil
	}
	sent := l.hub.clock.Now()
	ans, _, ok := l.askNow(ctx, at, algo.Op{Asks: []int64{n}, Partial: least < n})
	if !ok {
		if err := ctx.Err(); err != nil {
			return hybridlimit.Result{}, err
		}
		return l.exactFallback(key, at, res, least)
	}
	v := at.rules.said(ans, least)
	if v.action == admit {
		n = ans.Granted
	} else {
		l.refuse(key, at, least, ans, sent, l.hub.clock.Now())
	}
	res = l.fill(res, at.rules, v, n)
	res.ResetAfter = time.Duration(at.rules.Reset(ans)) * time.Microsecond
	return l.answerUnder(at.rules, key, res, n), nil
}

// said is what Redis answered to an ask for least units or more.
func (r *rules) said(ans wire.Answer, least int64) verdict {
	v := verdict{action: deny, source: hybridlimit.SourceRedis, retry: ans.Retry * 1000, left: r.Units(ans.Level)}
	if ans.Granted >= least {
		v.action, v.delay = admit, ans.Delay*1000
	}
	return v
}

// askNow sends one op by itself, once and without an envelope. It says what Redis
// answered, and at which µs of its time.
func (l *Limiter) askNow(ctx context.Context, at place, op algo.Op) (ans wire.Answer, now int64, ok bool) {
	if l.mute() {
		return ans, 0, false
	}
	wait := l.cfg.MaxWait
	call, ok := l.hub.breaker(at.tag).Begin()
	if !ok || wait < 0 {
		if ok {
			call.End(0, context.Canceled)
		}
		return ans, 0, false
	}
	if at.rules.Kind == algo.KindLog {
		op.ID = hybridlimit.RequestID(ctx)
	}
	op.Since = at.rules.since(l.hub.clock.Now())
	sent := time.Now()
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	reply, err := l.hub.caller.Batch(bounded, wire.Envelope{}, []wire.Op{{
		Key: at.key, Limit: at.rules.limit, Op: op,
	}})
	l.hub.exacts.Add(1)
	l.count.ops.Add(1)
	took := time.Since(sent)
	blamed := l.blame(ctx, err)
	call.End(l.hub.engine.Without(took), blamed)
	if err != nil {
		if !errors.Is(blamed, context.Canceled) { // nobody's but Redis's
			l.hub.failed.Add(1)
		}
		return ans, 0, false
	}
	ans = reply.Answers[0]
	l.count.debited.Add(ans.Granted)
	l.hub.clocks.heard(at.tag, reply.Now, l.hub.clock.At(sent), l.hub.clock.At(sent.Add(took)))
	l.found(at.rules.Bucket, ans.Level)
	return ans, reply.Now, true
}

// blame is an error as the breaker should hear it: the end of the caller, or of
// the limiter, says nothing of Redis.
func (l *Limiter) blame(ctx context.Context, err error) error {
	if err != nil && (ctx.Err() != nil || l.closed.Load()) {
		return context.Canceled
	}
	return err
}

// exactFallback answers a call that Redis did not answer.
func (l *Limiter) exactFallback(key string, at place, res hybridlimit.Result, n int64) (hybridlimit.Result, error) {
	v, err := l.withoutRedis(key, at, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return l.answerUnder(at.rules, key, l.fill(res, at.rules, v, n), n), nil
}

// withoutRedis decides locally for a call that Redis did not answer.
func (l *Limiter) withoutRedis(key string, at place, n int64) (verdict, error) {
	e, _, err := l.lockAt(key, at)
	switch {
	case err != nil:
		return verdict{}, err
	case e == nil && l.closed.Load(): // who has an entry was asked under its lock
		return verdict{}, hybridlimit.ErrClosed
	case e != nil:
		return l.event(e, func(t terms, now int64, broken bool) verdict { return e.state.without(&t, n, now, broken) }), nil
	}
	return l.withoutMemory(key, at, n), nil
}

// refusal is what Redis said when it denied an exact call: none of as many
// units before then.
type refusal struct {
	n      int64 // units; 0: nothing is known
	until  int64 // ns
	relook int64 // ns: until when it is believed
	left   int64 // units that were left
	reset  int64 // ns: when nothing is used any more
}

// holds says whether it denies n units at now.
func (r refusal) holds(n, now int64) bool {
	return r.n > 0 && n >= r.n && now < min(r.until, r.relook)
}

// refused is what Redis said, and the time, where it has refused as many units
// of a key under this limit, and that still holds.
func (l *Limiter) refused(key string, at place, n int64) (r refusal, now int64, ok bool) {
	if l.cfg.Mode == ModeExact {
		return r, 0, false // it was asked for
	}
	e := l.store.get(key)
	if e == nil {
		return r, 0, false
	}
	e.lock()
	defer e.unlock()
	r, now = e.state.refusal, l.hub.clock.Now()
	return r, now, !e.dead && e.rules.Load().limit == at.rules.limit && r.holds(n, now)
}

// refuse notes a refusal that was received at now, unless one of fewer units
// still holds.
func (l *Limiter) refuse(key string, at place, n int64, ans wire.Answer, sent, now int64) {
	if l.cfg.Mode == ModeExact || at.rules.Kind != algo.KindLog {
		return
	}
	e, _, err := l.lockAt(key, at)
	if e == nil || err != nil {
		return // no memory for it: Redis is asked again
	}
	defer e.unlock()
	if r := e.state.refusal; n <= r.n || !r.holds(r.n, now) {
		e.state.refusal = refusal{
			n: n, until: sent + ans.Retry*1000, relook: now + l.hub.jitter(maxLookAgain),
			left: at.rules.Units(ans.Level), reset: now + at.rules.Reset(ans)*1000,
		}
	}
}

// accept forgets a refusal: something came back that it does not know of.
func (l *Limiter) accept(key string) {
	if e := l.store.get(key); e != nil {
		e.lock()
		defer e.unlock()
		e.state.refusal = refusal{}
	}
}
