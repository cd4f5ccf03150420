package hybrid

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// rules is a limit and what follows from it.
type rules struct {
	limit  hybridlimit.Limit
	bucket algo.Bucket
	full   int64      // ns from empty to full
	from   rulesOrder // who gave the limit
}

// rulesOrder says who gave a key its limit.
type rulesOrder uint8

const (
	fromLimiter rulesOrder = iota // SetLimit changes it
	fromConfig                    // Config.LimitFor
	fromCall                      // AllowLimit
)

func newRules(l hybridlimit.Limit) *rules {
	return &rules{limit: l, bucket: algo.BucketOf(l), full: int64(l.TimeToFull())}
}

// given is r where it came with a call, which the slow path must be told.
func (r *rules) given() *rules {
	if r.from == fromCall {
		return r
	}
	return nil
}

// outdated says whether SetLimit has replaced the limit that a key still has.
func (l *Limiter) outdated(r *rules) bool { return r.from == fromLimiter && r != l.rules.Load() }

// SetLimit changes the limit of every key that has none of its own, at once.
// What a key has used stays used: its level, in units, survives, capped at the
// new burst, and refills at the new rate from then on. It is never a free
// refill. Units already leased may still be spent, for a second at most. Other
// processes keep theirs until they are told too; meanwhile each op counts by
// its sender's limit.
//
// It changes this process only, and the algorithm not at all. A limiter that
// shares its identity with another of this program refuses, because the other
// would go on with the old limit.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	if l.closed.Load() {
		return hybridlimit.ErrClosed
	}
	var bad hybridlimit.Violations
	bad.AddLimit(limit)
	if l.cfg.FallbackFloor > limit.BurstSize() {
		bad.Add("Limit.Burst", limit.BurstSize(), fmt.Sprintf("must not be below Config.FallbackFloor (%d)", l.cfg.FallbackFloor))
	}
	if err := errors.Join(bad.Err("hybrid"), supported(limit)); err != nil {
		return err
	}
	if err := reclaim(identity{l.hub.client, l.hub.cfg.Prefix, l.cfg.Name}, limit); err != nil {
		return err
	}
	l.rules.Store(newRules(limit))
	return nil
}

// adapt gives an entry other rules. Call it under e.mu.
func (e *entry) adapt(r *rules, now int64) {
	old := e.rules.Load()
	if old == r {
		return
	}
	e.begin(now)
	e.rules.Store(r)
	if old.limit == r.limit {
		return
	}
	v := &e.state.view
	v.level, v.cap = r.bucket.Rescale(v.level, old.bucket.Unit), r.bucket.Rescale(v.cap, old.bucket.Unit)
	v.turn, v.relook = 0, 0 // what it proved, it proved of the old limit
}
