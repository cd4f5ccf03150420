package hybrid

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file is costs above the burst, which nobody can ever be granted. What is
// left is said all the same: by the estimate in memory, or by Redis of a key of
// which nothing is known here, once in maxLookAgain or so.

// aboveHere denies n units of a locked entry, which it unlocks.
func (l *Limiter) aboveHere(ctx context.Context, e *entry, r *rules, key string, given *rules, n int64) (hybridlimit.Result, error) {
	res := hybridlimit.Result{Limit: r.burst, Policy: l.cfg.Name}
	var known bool
	var was refusal
	var now int64
	v := l.event(e, func(_ terms, at int64, broken bool) verdict {
		now, known, was = at, e.state.view.known || broken, e.state.refusal
		return verdict{}
	})
	if known {
		res.Remaining, res.ResetAfter = max(0, v.left), l.resetAfter(r, v.left, v.ends)
		return l.answerUnder(r, key, never(res), n), nil
	}
	owed := r.burst - v.left // and Redis has not heard of it
	if was.holds(n, now) {
		res.Remaining, res.ResetAfter = was.left, time.Duration(max(0, was.reset-now))
	} else {
		at, err := l.placeUnder(key, given)
		if err != nil {
			return hybridlimit.Result{}, err
		}
		var ok bool
		if res, ok = l.aboveAsked(ctx, at); ok {
			l.noteAbove(e, r, res)
		} else {
			res.Remaining = r.burst
		}
	}
	if owed != 0 {
		res.ResetAfter = l.resetAfter(r, res.Remaining-owed, v.ends)
		res.Remaining = max(0, res.Remaining-owed)
	}
	return l.answerUnder(r, key, never(res), n), nil
}

// aboveAll is the answer of the first part that is decided by Redis and asks for
// more than the burst, if there is one.
func aboveAll(ctx context.Context, parts []*part) (res hybridlimit.Result, ok bool) {
	for _, p := range parts {
		if !p.exactly || p.N <= p.at.rules.burst || p.Limiter.switches.shadow.Load() {
			continue
		}
		p.rules = p.at.rules
		one, _ := p.Limiter.aboveAsked(ctx, p.at)
		p.res = p.Limiter.tally(never(one), p.N)
		return p.res, true
	}
	return res, false
}

// aboveAsked asks Redis what is left of a key. It reports false, and that nothing
// is left, where Redis does not answer.
func (l *Limiter) aboveAsked(ctx context.Context, at place) (res hybridlimit.Result, ok bool) {
	res = hybridlimit.Result{Limit: at.rules.burst, Policy: l.cfg.Name}
	ans, _, ok := l.askNow(ctx, at, algo.Op{})
	if ok {
		res.Remaining = at.rules.Units(ans.Level)
		res.ResetAfter = time.Duration(at.rules.Reset(ans)) * time.Microsecond
	}
	return res, ok
}

// noteAbove keeps what Redis said, for costs above the burst that come next.
func (l *Limiter) noteAbove(e *entry, r *rules, res hybridlimit.Result) {
	now := l.hub.clock.Now()
	e.lock()
	defer e.unlock()
	if s := &e.state; !e.dead && e.rules.Load().limit == r.limit && !s.view.known && !s.refusal.holds(s.refusal.n, now) {
		s.refusal = refusal{
			n: r.burst + 1, until: int64(hybridlimit.Never), relook: now + l.hub.jitter(maxLookAgain),
			left: res.Remaining, reset: now + int64(res.ResetAfter),
		}
	}
}
