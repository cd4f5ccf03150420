package hybrid

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/direct"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// slow decides when the fast path cannot: the key is not in memory, its budget has expired, or its units have run out.
func (l *Limiter) slow(ctx context.Context, key string, n int64, given *account.Plan) (hybridlimit.Result, error) {
	if res, ok := l.terms.DecidedBySwitch(n); ok {
		l.terms.LogDenial(key, nil, n, &res)
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
		return l.terms.Answer(key, r, res, n), nil
	}
	res.Limit = r.Burst
	if n > res.Limit {
		return l.aboveHere(ctx, e, r, key, given, n)
	}
	v, err := l.terms.Decide(ctx, e, r, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return l.terms.Answer(key, r, l.terms.Fill(res, r, v, n), n), nil
}

// never returns the denial of a cost that the burst can never hold.
func never(res hybridlimit.Result) hybridlimit.Result {
	res.RetryAfter, res.Source = hybridlimit.Never, hybridlimit.SourceStatic
	return res
}

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
		return l.terms.Answer(key, at.Plan, res, n), nil
	}
	if least > res.Limit {
		res, _ = l.direct.Left(ctx, at)
		return l.terms.Answer(key, at.Plan, never(res), n), nil
	}
	if r, now, ok := l.direct.Refused(key, at, least); ok {
		v := account.Verdict{Action: account.Deny, Source: hybridlimit.SourceDenyCache, Retry: r.Until - now, Left: r.Left}
		res = l.terms.Fill(res, at.Plan, v, n)
		res.ResetAfter = time.Duration(max(0, r.Reset-now))
		return l.terms.Answer(key, at.Plan, res, n), nil
	}
	sent := l.hub.clock.Now()
	ans, _, ok := l.direct.Ask(ctx, at, algo.Op{Asks: []int64{n}, Partial: least < n})
	if !ok {
		if err := direct.Ended(ctx); err != nil {
			return hybridlimit.Result{}, err
		}
		return l.exactFallback(key, at, res, least)
	}
	v := direct.Said(at.Plan, ans, least)
	if v.Action == account.Admit {
		n = ans.Granted
	} else {
		l.direct.Refuse(key, at, least, ans, sent, l.hub.clock.Now())
	}
	res = l.terms.Fill(res, at.Plan, v, n)
	res.ResetAfter = time.Duration(at.Plan.Reset(ans)) * time.Microsecond
	return l.terms.Answer(key, at.Plan, res, n), nil
}

// exactFallback answers a call that Redis did not answer.
func (l *Limiter) exactFallback(key string, at keys.Place, res hybridlimit.Result, n int64) (hybridlimit.Result, error) {
	v, err := l.direct.WithoutRedis(key, at, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return l.terms.Answer(key, at.Plan, l.terms.Fill(res, at.Plan, v, n), n), nil
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
		return l.terms.Answer(key, r, never(res), n), nil
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
		if res, ok = l.direct.Left(ctx, at); ok {
			l.direct.NoteAbove(e, r, res)
		} else {
			res.Remaining = r.Burst
		}
	}
	if owed != 0 {
		res.ResetAfter = l.terms.ResetAfter(r, res.Remaining-owed, v.Ends)
		res.Remaining = max(0, res.Remaining-owed)
	}
	return l.terms.Answer(key, r, never(res), n), nil
}

// aboveAll returns the denial of the first part that Redis decides and that costs more than its burst. It reports false
// if there is no such part. Parts of a shadow limit do not count.
func aboveAll(ctx context.Context, parts []*part) (res hybridlimit.Result, ok bool) {
	for _, p := range parts {
		if !p.exactly || p.N <= p.at.Plan.Burst || p.Limiter.control.Shadow.Load() {
			continue
		}
		p.plan = p.at.Plan
		one, _ := p.Limiter.direct.Left(ctx, p.at)
		p.res = p.Limiter.terms.Tally(never(one), p.N)
		return p.res, true
	}
	return res, false
}
