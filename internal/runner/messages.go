package runner

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// call runs a script, or the function of the same effect, and decodes the reply.
func call[T any](
	ctx context.Context, r *Runner, script lua.Script, function string, keys, argv []string, decode func(raw any) (T, error),
) (reply T, err error) {
	if !r.Begin() {
		return reply, hybridlimit.ErrClosed
	}
	defer r.calls.Done()
	raw, err := r.send(ctx, script, function, keys, boxed(argv))
	if err != nil {
		return reply, err
	}
	return decode(raw)
}

// History returns a page of the admissions of a key under a sliding log. The page starts after the time after, in µs of
// Redis time; 0: at the oldest entry. It holds at most wire.MaxHistory entries. wire.ReadHistory joins pages.
func (r *Runner) History(ctx context.Context, key string, limit hybridlimit.Limit, after int64) (wire.Page, error) {
	keys, argv := wire.EncodeHistory(key, limit, after, wire.MaxHistory)
	return call(ctx, r, lua.History, lua.Library.History, keys, argv, wire.DecodeHistory)
}

// Permits sends a message about calls in flight. memory and keys are from lua.Names.Holdings and Held, with one key for
// each op.
//
// The error is permits.ErrStale if Redis has a later message of the process, and wire.ErrRefused if it read the message
// and did not apply it.
func (r *Runner) Permits(ctx context.Context, memory string, keys []string, m permits.Message) (permits.Answer, error) {
	all, argv := wire.EncodePermits(memory, keys, m)
	return call(ctx, r, lua.Permits, lua.Library.Permits, all, argv, func(raw any) (permits.Answer, error) {
		return wire.DecodePermits(raw, m)
	})
}

// Rates sends a message about leased rates. keys has one from lua.Names.Rate and one from Lease for each op.
//
// The error is wire.ErrRefused if Redis read the message and did not apply it.
func (r *Runner) Rates(ctx context.Context, keys []string, ops []ratelease.Op) ([]wire.RateAnswer, error) {
	argv := wire.EncodeRates(ops)
	return call(ctx, r, lua.Rates, lua.Library.Rates, keys, argv, func(raw any) ([]wire.RateAnswer, error) {
		return wire.DecodeRates(raw, ops)
	})
}

// Heartbeat records that a process is alive. It returns the number of live processes of the groups that p names. With
// Leave it removes the process instead.
//
// The error is wire.ErrRefused if Redis read the heartbeat and did not apply it, because the deployment has too many
// groups.
func (r *Runner) Heartbeat(ctx context.Context, p wire.Pulse) (wire.Beat, error) {
	keys, argv := wire.EncodePulse(p)
	return call(ctx, r, lua.Fleet, lua.Library.Heartbeat, keys, argv, func(raw any) (wire.Beat, error) {
		return wire.DecodeBeat(raw, p)
	})
}

// Settings tells Redis the settings that a process saw last, and returns those that are valid. changed is from
// lua.Names.Changed.
func (r *Runner) Settings(ctx context.Context, changed string, settings []wire.Setting, ttl time.Duration) (wire.Settings, error) {
	keys, argv := wire.EncodeSettings(changed, settings, ttl)
	return call(ctx, r, lua.Settings, lua.Library.Settings, keys, argv, func(raw any) (wire.Settings, error) {
		return wire.DecodeSettings(raw, settings)
	})
}

// SetSwitch sets the fleet's switch of a limiter and returns it with its time. The keys are from lua.Names.Switch and
// Changed. The switch expires after ttl unless processes renew it.
func (r *Runner) SetSwitch(ctx context.Context, key, changed string, to int64, ttl time.Duration) (wire.Flag, error) {
	keys, argv := wire.EncodeSwitch(key, changed, to, ttl)
	return call(ctx, r, lua.SetSwitch, lua.Library.SetSwitch, keys, argv, wire.DecodeSwitch)
}

// Switch returns the fleet's switch of a limiter. key is from lua.Names.Switch.
func (r *Runner) Switch(ctx context.Context, key string) (wire.Flag, error) {
	keys, argv := wire.EncodeSwitchRead(key)
	return call(ctx, r, lua.SetSwitch, lua.Library.SetSwitch, keys, argv, wire.DecodeSwitch)
}

// SetFleetLimit sets the fleet's limit of a limiter and returns it with its time. The keys are from
// lua.Names.FleetLimit and Changed. The limit expires after ttl unless processes renew it.
func (r *Runner) SetFleetLimit(ctx context.Context, key, changed, text string, ttl time.Duration) (wire.FleetLimit, error) {
	keys, argv := wire.EncodeFleetLimit(key, changed, text, ttl)
	return call(ctx, r, lua.SetLimit, lua.Library.SetLimit, keys, argv, wire.DecodeFleetLimit)
}

// SetKeyLimit sets the fleet's limit of a key of a limiter, and returns all of them. The keys are from
// lua.Names.KeyLimits and Changed. They expire after ttl unless processes renew them. The error is wire.ErrFull if the
// limiter has no room for one more.
func (r *Runner) SetKeyLimit(ctx context.Context, state, changed string, limit wire.KeyLimit, ttl time.Duration) (wire.KeyLimits, error) {
	keys, argv := wire.EncodeSetKeyLimit(state, changed, limit, ttl)
	return call(ctx, r, lua.SetKeys, lua.Library.SetKeys, keys, argv, wire.DecodeKeyLimits)
}

// TellKeyLimits tells Redis limits of keys that a process knows, and returns all of them.
func (r *Runner) TellKeyLimits(ctx context.Context, state, changed string, limits []wire.KeyLimit, ttl time.Duration) (wire.KeyLimits, error) {
	keys, argv := wire.EncodeTellKeyLimits(state, changed, limits, ttl)
	return call(ctx, r, lua.SetKeys, lua.Library.SetKeys, keys, argv, wire.DecodeKeyLimits)
}

// KeyLimits returns the fleet's limits of the keys of a limiter. state is from lua.Names.KeyLimits.
func (r *Runner) KeyLimits(ctx context.Context, state string) (wire.KeyLimits, error) {
	keys, argv := wire.EncodeReadKeyLimits(state)
	return call(ctx, r, lua.SetKeys, lua.Library.SetKeys, keys, argv, wire.DecodeKeyLimits)
}

// FleetLimit returns the fleet's limit of a limiter. key is from lua.Names.FleetLimit.
func (r *Runner) FleetLimit(ctx context.Context, key string) (wire.FleetLimit, error) {
	keys, argv := wire.EncodeFleetLimitRead(key)
	return call(ctx, r, lua.SetLimit, lua.Library.SetLimit, keys, argv, wire.DecodeFleetLimit)
}
