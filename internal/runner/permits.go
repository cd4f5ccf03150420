package runner

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Permits sends a message about calls in flight. memory and keys are from lua.Names.Holdings and Held, with one key for
// each op.
//
// The error is permits.ErrStale if Redis has a later message of the process, and wire.ErrRefused if it read the message
// and did not apply it.
func (r *Runner) Permits(ctx context.Context, memory string, keys []string, m permits.Message) (permits.Answer, error) {
	all, argv := wire.EncodePermits(memory, keys, m)
	raw, err := r.run(ctx, lua.Permits, lua.Library.Permits, all, argv)
	switch {
	case err != nil && redis.HasErrorPrefix(err, "HLPERMITS stale"):
		return permits.Answer{}, fmt.Errorf("%w: %w", permits.ErrStale, err)
	case err != nil && redis.HasErrorPrefix(err, "HLPERMITS"):
		return permits.Answer{}, fmt.Errorf("%w: %w", wire.ErrRefused, err)
	case err != nil:
		return permits.Answer{}, err
	}
	return wire.DecodePermits(raw, m)
}
