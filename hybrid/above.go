package hybrid

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/clock"
)

// This file decides calls that cost more than the burst, which are always denied. Such a denial still reports the units left. They
// come from the estimate in memory. For a key without a view they come from Redis, which is asked about once per account.MaxView.

// aboveHere denies n units of a locked entry and unlocks the entry.
func (l *Limiter) aboveHere(ctx context.Context, e *keys.Entry, r *account.Plan, key string, given *account.Plan, n int64) (hybridlimit.Result, error) {
	res := hybridlimit.Result{Limit: r.Burst, Policy: l.cfg.Name}
	ev := e.Event()
	now, was := ev.Now, e.Account.Refusal()
	known := e.Account.Viewed() || ev.Conditions.Broken
	v := ev.End(account.Verdict{})
	if known {
		if res.Remaining = keys.Remaining(v); res.Remaining == 0 { // a call for one unit would be denied: see fill
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

// aboveAll returns the denial of the first part that Redis decides and that costs more than its burst. It reports false if there
// is no such part. Parts of a shadow limit do not count.
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
