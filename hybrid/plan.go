package hybrid

import (
	"errors"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// static is the answer of a limit that counts nothing; ok is false for any other.
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

// exactly reports whether every decision asks Redis. A log does, since each of its calls has a time of its own. A limit that counts
// nothing stands for the one before it: LimitFor may still give keys logs.
func (l *Limiter) exactly(p *account.Plan) bool {
	return l.cfg.Mode == ModeExact || p.Kind == algo.KindLog || p.Counts == hybridlimit.AlgSlidingLog
}

// slotTime is how long a unit of a queue takes; 0: nothing is queued.
func slotTime(p *account.Plan) time.Duration {
	if !p.Bucket.Queue {
		return 0
	}
	return time.Duration(p.Each())
}

// outdated reports whether SetLimit has replaced the limit that a key still has.
func (l *Limiter) outdated(r *account.Plan) bool {
	return r.From == account.FromLimiter && r != l.plan.Load()
}

// revertsToOwn reports whether the next call without a limit restores the key's own limit: the last limit came with a call, or
// SetLimit has replaced it and LimitFor may give another.
func (l *Limiter) revertsToOwn(r *account.Plan) bool {
	return r.From == account.FromCall || l.cfg.LimitFor != nil && l.outdated(r)
}

// SetLimit changes the limit of every key that has none of its own, at once. What a key has used stays used: its level, in units,
// survives, capped at the new burst, and refills at the new rate from then on. It is never a free refill. Units that are leased
// already may still be spent, for a second at most, or, of windows, until their window ends.
//
// It changes this process only, and never the algorithm. Other processes keep their limit until they are told too. Until then each
// op counts by the limit of its sender, and the fleet may admit more than the larger of the limits: change all processes soon after
// each other. A limiter that shares its identity with another of this program refuses, because the other would go on with the old
// limit.
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

// sameAlgorithm refuses a limit that counts otherwise than a limiter does: what
// is used under the one says nothing under the other. Limits that count nothing
// go with all.
func sameAlgorithm(limit hybridlimit.Limit, have *account.Plan) error {
	var bad hybridlimit.Violations
	if counts := (hybridlimit.Limit{Algorithm: have.Counts}); limit.Algorithm != have.Counts && !account.Static(limit) && !account.Static(counts) {
		bad.Add("Limit.Algorithm", limit.Algorithm, "must be the algorithm of the limiter, "+have.Counts.String())
	}
	return bad.Err("hybrid")
}
