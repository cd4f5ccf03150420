package direct

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// Exact asks Redis to decide this call. The message is sent once and has no envelope.
func (a *Asker) Exact(ctx context.Context, key string, n int64, given *account.Plan) (hybridlimit.Result, error) {
	return a.UpTo(ctx, key, n, n, given)
}

// UpTo is Exact for up to n units. It denies the call if Redis has fewer than least units. least is 1 or n.
func (a *Asker) UpTo(ctx context.Context, key string, least, n int64, given *account.Plan) (hybridlimit.Result, error) {
	at, err := a.terms.PlaceUnder(key, given)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	res := hybridlimit.Result{Limit: at.Plan.Shown, Policy: a.terms.Name}
	if res, ok := keys.Static(at.Plan, res, n); ok {
		return a.terms.Answer(key, at.Plan, res, n), nil
	}
	if least > at.Plan.Most {
		res, _ = a.Left(ctx, at)
		return a.terms.Answer(key, at.Plan, keys.Never(res), n), nil
	}
	if r, now, ok := a.Refused(key, at, least); ok {
		v := account.Verdict{Action: account.Deny, Source: hybridlimit.SourceDenyCache, Retry: r.Until - now, Left: r.Left}
		res = a.terms.Fill(res, at.Plan, v, n)
		res.ResetAfter = time.Duration(max(0, r.Reset-now))
		return a.terms.Answer(key, at.Plan, res, n), nil
	}
	sent := a.terms.Clock.Now()
	ans, _, ok := a.Ask(ctx, at, algo.Op{Asks: []int64{n}, Partial: least < n})
	if !ok {
		if err := Ended(ctx); err != nil {
			return hybridlimit.Result{}, err
		}
		return a.Fallback(key, at, res, least)
	}
	v := Said(at.Plan, ans, least)
	if v.Action == account.Admit {
		n = ans.Granted
	} else {
		a.Refuse(key, at, least, ans, sent, a.terms.Clock.Now())
	}
	res = a.terms.Fill(res, at.Plan, v, n)
	res.ResetAfter = time.Duration(at.Plan.Reset(ans)) * time.Microsecond
	return a.terms.Answer(key, at.Plan, res, n), nil
}

// Fallback answers a call that Redis did not answer.
func (a *Asker) Fallback(key string, at keys.Place, res hybridlimit.Result, n int64) (hybridlimit.Result, error) {
	v, err := a.WithoutRedis(key, at, n)
	if err != nil {
		return hybridlimit.Result{}, err
	}
	return a.terms.Answer(key, at.Plan, a.terms.Fill(res, at.Plan, v, n), n), nil
}

// The rest of this file decides calls that cost more than the burst, which are always denied. Such a denial still
// reports the units left. They come from the estimate in memory. For a key without a view they come from Redis, which
// is asked about once per account.MaxView.

// AboveHere denies n units of a locked entry and unlocks the entry.
func (a *Asker) AboveHere(ctx context.Context, e *keys.Entry, r *account.Plan, key string, given *account.Plan, n int64) (hybridlimit.Result, error) {
	res := hybridlimit.Result{Limit: r.Shown, Policy: a.terms.Name}
	ev := e.Event()
	now, was := ev.Now, e.Account.Refusal()
	known := e.Account.Viewed() || ev.Conditions.Broken
	v := ev.End(account.Verdict{})
	if known {
		if res.Remaining = keys.Remaining(v); res.Remaining == 0 { // a call for one unit would be denied: see keys.Terms.Fill
			v.Left = min(v.Left, 0)
		}
		res.ResetAfter = a.terms.ResetAfter(r, v.Left, v.Ends)
		return a.terms.Answer(key, r, keys.Never(res), n), nil
	}
	owed := r.Burst - v.Left // not in Redis's answer
	if was.Holds(n, now) {
		res.Remaining, res.ResetAfter = was.Left, time.Duration(max(0, was.Reset-now))
	} else {
		at, err := a.terms.PlaceUnder(key, given)
		if err != nil {
			return hybridlimit.Result{}, err
		}
		var ok bool
		if res, ok = a.Left(ctx, at); ok {
			a.NoteAbove(e, r, res)
		} else {
			res.Remaining = r.Burst
		}
	}
	if owed != 0 {
		res.ResetAfter = a.terms.ResetAfter(r, res.Remaining-owed, v.Ends)
		res.Remaining = max(0, res.Remaining-owed)
	}
	return a.terms.Answer(key, r, keys.Never(res), n), nil
}
