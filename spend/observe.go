package spend

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// oldest is the age from which an observation says nothing.
const oldest = 10 * time.Second

// Observe lowers the units left of a key to those of another count, such as the X-RateLimit-Remaining of a provider
// that other users call too. It never raises them, and the same observation twice is one. Units of leases that
// processes may still spend come off remaining. Take off the units of calls whose answer has not come yet: the provider
// may not have counted them.
//
// The units come back as those of the limit do. resetAfter is the time until the other count begins anew. An
// observation that Redis does not hear of in that time, or in 10 seconds, says nothing. 0: not known. A negative
// remaining or resetAfter is ignored, as a provider's sign for "not known". A remaining above the limit lowers nothing.
//
// Of package hybrid, this process knows at once, and Redis with the next sync of the key: at most one in T. Use of
// which this process knows costs no message. Processes that hold a lease spend it first. From the first observation on,
// leases of the limiter's buckets live for a second, as with Config.MaxLease. Of a window and a queue, only the leases
// of this process come off remaining. Stats.Observed counts. Of package global it is one message. Of package local it
// holds in this limiter. A sliding log, limits of calls in flight and other limiters are ErrUnsupported. The other
// errors are those of AllowN.
func Observe(
	ctx context.Context, limiter hybridlimit.Limiter, key string, remaining int64, resetAfter time.Duration,
) error {
	return observe(ctx, limiter, key, remaining, resetAfter, 0)
}

// ObserveWindow is Observe for a count of fixed windows, such as GitHub's: it has no new units before resetAfter. A
// token or leaky bucket refills in that time. So the units of this refill come off remaining too, down to one burst of
// debt, and what remains lasts until then. The other limits hold back nothing more than with Observe.
func ObserveWindow(
	ctx context.Context, limiter hybridlimit.Limiter, key string, remaining int64, resetAfter time.Duration,
) error {
	return observe(ctx, limiter, key, remaining, resetAfter, max(0, resetAfter))
}

func observe(
	ctx context.Context, limiter hybridlimit.Limiter, key string, remaining int64, resetAfter, pace time.Duration,
) error {
	var bad adapter.Violations
	bad.AddIf(limiter == nil, "limiter", nil, "must not be nil")
	if err := bad.Err("spend: Observe"); err != nil {
		return err
	}
	t := news.Of(limiter)
	if t == nil {
		return fmt.Errorf("spend: Observe: %w: %T has no level to lower", hybridlimit.ErrUnsupported, limiter)
	}
	if remaining < 0 || resetAfter < 0 {
		return nil
	}
	o := news.Observation{Remaining: remaining, Valid: oldest, Pace: pace}
	if resetAfter > 0 {
		o.Valid = min(oldest, resetAfter)
	}
	return t.Observe(ctx, key, o)
}
