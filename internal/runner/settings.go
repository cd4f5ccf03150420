package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// Heartbeat records that a process is alive. It returns the number of live processes of the groups that p names. With
// Leave it removes the process instead.
//
// The error is wire.ErrRefused if Redis read the heartbeat and did not apply it, because the deployment has too many
// groups.
func (r *Runner) Heartbeat(ctx context.Context, p wire.Pulse) (wire.Beat, error) {
	keys, argv := wire.EncodePulse(p)
	raw, err := r.run(ctx, lua.Fleet, lua.Library.Heartbeat, keys, argv)
	if err != nil && redis.HasErrorPrefix(err, "HLFLEET") {
		err = fmt.Errorf("%w: %w", wire.ErrRefused, err)
	}
	if err != nil {
		return wire.Beat{}, err
	}
	return wire.DecodeBeat(raw, p)
}

// Settings tells Redis the settings that a process saw last, and returns those that are valid. changed is from
// lua.Names.Changed.
func (r *Runner) Settings(ctx context.Context, changed string, settings []wire.Setting, ttl time.Duration) (wire.Settings, error) {
	keys, argv := wire.EncodeSettings(changed, settings, ttl)
	raw, err := r.run(ctx, lua.Settings, lua.Library.Settings, keys, argv)
	if err != nil {
		return wire.Settings{}, err
	}
	return wire.DecodeSettings(raw, settings)
}

// SetSwitch sets the fleet's switch of a limiter and returns it with its time. The keys are from lua.Names.Switch and
// Changed. The switch expires after ttl unless processes renew it.
func (r *Runner) SetSwitch(ctx context.Context, key, changed string, to int64, ttl time.Duration) (wire.Flag, error) {
	keys, argv := wire.EncodeSwitch(key, changed, to, ttl)
	return r.flag(ctx, keys, argv)
}

// Switch returns the fleet's switch of a limiter. key is from lua.Names.Switch.
func (r *Runner) Switch(ctx context.Context, key string) (wire.Flag, error) {
	keys, argv := wire.EncodeSwitchRead(key)
	return r.flag(ctx, keys, argv)
}

func (r *Runner) flag(ctx context.Context, keys, argv []string) (wire.Flag, error) {
	raw, err := r.run(ctx, lua.SetSwitch, lua.Library.SetSwitch, keys, argv)
	if err != nil {
		return wire.Flag{}, err
	}
	return wire.DecodeSwitch(raw)
}

// SetFleetLimit sets the fleet's limit of a limiter and returns it with its time. The keys are from
// lua.Names.FleetLimit and Changed. The limit expires after ttl unless processes renew it.
func (r *Runner) SetFleetLimit(ctx context.Context, key, changed, text string, ttl time.Duration) (wire.FleetLimit, error) {
	keys, argv := wire.EncodeFleetLimit(key, changed, text, ttl)
	return r.fleetLimit(ctx, keys, argv)
}

// SetKeyLimit sets the fleet's limit of a key of a limiter, and returns all of them. The keys are from
// lua.Names.KeyLimits and Changed. They expire after ttl unless processes renew them. The error is wire.ErrFull if the
// limiter has no room for one more.
func (r *Runner) SetKeyLimit(ctx context.Context, state, changed string, limit wire.KeyLimit, ttl time.Duration) (wire.KeyLimits, error) {
	keys, argv := wire.EncodeSetKeyLimit(state, changed, limit, ttl)
	return r.keyLimits(ctx, keys, argv)
}

// TellKeyLimits tells Redis limits of keys that a process knows, and returns all of them.
func (r *Runner) TellKeyLimits(ctx context.Context, state, changed string, limits []wire.KeyLimit, ttl time.Duration) (wire.KeyLimits, error) {
	keys, argv := wire.EncodeTellKeyLimits(state, changed, limits, ttl)
	return r.keyLimits(ctx, keys, argv)
}

// KeyLimits returns the fleet's limits of the keys of a limiter. state is from lua.Names.KeyLimits.
func (r *Runner) KeyLimits(ctx context.Context, state string) (wire.KeyLimits, error) {
	keys, argv := wire.EncodeReadKeyLimits(state)
	return r.keyLimits(ctx, keys, argv)
}

func (r *Runner) keyLimits(ctx context.Context, keys, argv []string) (wire.KeyLimits, error) {
	raw, err := r.run(ctx, lua.SetKeys, lua.Library.SetKeys, keys, argv)
	if err != nil {
		if redis.HasErrorPrefix(err, "HLFULL") {
			err = fmt.Errorf("%w: %w", wire.ErrFull, err)
		}
		return wire.KeyLimits{}, err
	}
	return wire.DecodeKeyLimits(raw)
}

// FleetLimit returns the fleet's limit of a limiter. key is from lua.Names.FleetLimit.
func (r *Runner) FleetLimit(ctx context.Context, key string) (wire.FleetLimit, error) {
	keys, argv := wire.EncodeFleetLimitRead(key)
	return r.fleetLimit(ctx, keys, argv)
}

func (r *Runner) fleetLimit(ctx context.Context, keys, argv []string) (wire.FleetLimit, error) {
	raw, err := r.run(ctx, lua.SetLimit, lua.Library.SetLimit, keys, argv)
	if err != nil {
		return wire.FleetLimit{}, err
	}
	return wire.DecodeFleetLimit(raw)
}
