package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// static returns the answer of a limit that counts nothing. ok is false for any other limit.
func static(p *account.Plan, res hybridlimit.Result, n int64) (_ hybridlimit.Result, ok bool) {
	if !account.Static(p.Limit) {
		return res, false
	}
	res.Limit, res.Source = p.Burst, hybridlimit.SourceStatic
	if res.Allowed = p.Limit.Algorithm == hybridlimit.AlgUnlimited; res.Allowed {
		res.Granted, res.Remaining = n, res.Limit
	} else {
		res.RetryAfter = hybridlimit.Never
	}
	return res, true
}

// exactly reports whether Redis decides every call. It decides every call of a log, because each call has its own time. A limit
// that counts nothing stands for the limit before it, because LimitFor may still give logs to keys.
func (l *Limiter) exactly(p *account.Plan) bool {
	return l.cfg.Mode == ModeExact || p.Kind == algo.KindLog || p.Counts == hybridlimit.AlgSlidingLog
}

// slotTime returns the time in which a queue serves one unit; 0: the plan is of no queue.
func slotTime(p *account.Plan) time.Duration {
	if !p.Bucket.Queue {
		return 0
	}
	return time.Duration(p.Each())
}

// outdated reports whether r is of the limiter's limit, and a change of that limit has replaced it. A change replaces
// both plans of the limiter.
func (l *Limiter) outdated(r *account.Plan) bool {
	if r.From != account.FromLimiter {
		return false
	}
	if r.Of != nil {
		r = r.Of
	}
	c := l.canary.Load()
	return r != l.plan.Load() && (c == nil || r != c.plan)
}

// revertsToOwn reports whether the next call without a limit restores the key's own limit. It does if the last limit came with a
// call. It also does if a change has replaced the last limit and the key may have a limit of its own.
func (l *Limiter) revertsToOwn(r *account.Plan) bool {
	return r.From == account.FromCall || l.keyed() && l.outdated(r)
}

// sameAlgorithm returns an error if the algorithm of the limit differs from the
// limiter's: usage under one algorithm has no meaning under another. Limits that
// count nothing are compatible with all.
func sameAlgorithm(limit hybridlimit.Limit, have *account.Plan) error {
	var bad hybridlimit.Violations
	if counts := (hybridlimit.Limit{Algorithm: have.Counts}); limit.Algorithm != have.Counts && !account.Static(limit) && !account.Static(counts) {
		bad.Add("Limit.Algorithm", limit.Algorithm, "must be the algorithm of the limiter, "+have.Counts.String())
	}
	return bad.Err("hybrid")
}
