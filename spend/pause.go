package spend

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/news"
)

// Pause denies each call for a key until a time, whatever the limit has. Example: a provider has answered 429 with a
// Retry-After. The denials have SourcePause, and RetryAfter is the rest of the pause. Units that are charged or come
// back count meanwhile. The longer of two pauses of a key counts. A pause cannot be ended before.
//
// Of package hybrid, this process knows the pause at once. All processes of the deployment know it with their next
// heartbeats, within about a second, also those that make no call. An idle process of a fleet above 500 knows it within
// ten seconds, or a round trip after its next call. While Redis is away, the pause holds in this
// process, and the others hear of it afterwards. Redis keeps 1000 pauses of a deployment; of more, those that end first
// are known only to the processes that know them already. Of package local, the pause holds in this limiter.
//
// until must be in the future, and at most 10 minutes from now: ErrInvalid. Other limiters, also those of package
// global and limits of calls in flight, are ErrUnsupported. hybrid.ErrFleetKeysFull means that this process knows 4000
// pauses that end later. The other errors are those of AllowN. It costs a hash of the key.
func Pause(ctx context.Context, limiter hybridlimit.Limiter, key string, until time.Time) error {
	left := time.Until(until)
	var bad adapter.Violations
	bad.AddIf(limiter == nil, "limiter", nil, "must not be nil")
	bad.AddIf(left <= 0, "until", until, "must be in the future")
	bad.AddIf(left > news.LongestPause, "until", until, fmt.Sprintf("must be at most %v from now", news.LongestPause))
	if err := bad.Err("spend: Pause"); err != nil {
		return err
	}
	t := news.Of(limiter)
	if t == nil {
		return fmt.Errorf("spend: Pause: %w: %T cannot pause a key", hybridlimit.ErrUnsupported, limiter)
	}
	return t.Pause(ctx, key, left)
}
