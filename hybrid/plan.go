package hybrid

import (
	"errors"
	"fmt"
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

// outdated reports whether SetLimit has replaced r as the limiter's limit.
func (l *Limiter) outdated(r *account.Plan) bool {
	return r.From == account.FromLimiter && r != l.plan.Load()
}

// revertsToOwn reports whether the next call without a limit restores the key's own limit. It does if the last limit came with a
// call. It also does if SetLimit has replaced the last limit and LimitFor may return another one.
func (l *Limiter) revertsToOwn(r *account.Plan) bool {
	return r.From == account.FromCall || l.cfg.LimitFor != nil && l.outdated(r)
}

// SetLimit changes the limit of every key that has no limit of its own, at once. Used units stay used: the level of a key, in
// units, survives, capped at the new burst, and refills at the new rate from then on. A change is never a free refill. Units that
// are already leased may still be spent, for at most one second. Leased units of a window may be spent until their window ends.
//
// SetLimit changes this process only, and never the algorithm. Other processes keep their limit until their own SetLimit. Until
// then each op counts by the limit of its sender, and the fleet may admit more than the larger of the limits. So change all
// processes soon after each other. SetLimit fails if another limiter of this program has the same client, prefix and name,
// because that limiter would continue with the old limit.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	l.setting.Lock()
	defer l.setting.Unlock()
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if l.cfg.FallbackFloor > limit.BurstSize() && !account.Static(limit) {
		bad.Add("Limit.Burst", limit.BurstSize(), fmt.Sprintf("must not be below Config.FallbackFloor (%d)", l.cfg.FallbackFloor))
	}
	have := l.plan.Load()
	if err := errors.Join(bad.Err("hybrid"), sameAlgorithm(limit, have)); err != nil {
		return err
	}
	if err := reclaim(identity{l.hub.client, l.hub.cfg.Prefix, l.cfg.Name}, limit); err != nil {
		return err
	}
	r := account.NewPlan(limit)
	r.Began = max(1, l.hub.clock.Now())
	if account.Static(limit) {
		r.Counts = have.Counts
	}
	l.plan.Store(r)
	l.hub.clock.Void()
	return nil
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
