package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Look reads the state of a key in Redis and converts it to the units of a limit. name is the key's name from
// lua.Names.State. Look costs three messages and writes nothing.
func (r *Runner) Look(ctx context.Context, name string, limit hybridlimit.Limit) (hybridlimit.KeyState, error) {
	if err := limit.Validate(); err != nil {
		return hybridlimit.KeyState{}, err
	}
	if limit.Algorithm == hybridlimit.AlgConcurrent { // Redis has no state of a rate
		const text = "hybridlimit: %w: a limit of calls in flight (%v) has no state of a key of this kind"
		return hybridlimit.KeyState{}, fmt.Errorf(text, hybridlimit.ErrUnsupported, limit)
	}
	k := hybridlimit.KeyState{Limit: limit}
	if limit.Algorithm == hybridlimit.AlgUnlimited || limit.Algorithm == hybridlimit.AlgBlocked { // Redis has no state
		k.Left = limit.BurstSize()
		return k, nil
	}
	t := algo.ScaleOf(limit)
	reply, err := r.Batch(ctx, wire.Envelope{}, []wire.Op{{Key: name, Limit: limit}}) // an op without asks is a peek
	if err != nil {
		return hybridlimit.KeyState{}, err
	}
	ans := reply.Answers[0]
	k.Left, k.ResetAfter = t.Units(ans.Level), micros(t.Reset(ans))
	if ans.Level < 0 {
		k.Debt = (t.Bucket.Unit - 1 - ans.Level) / t.Bucket.Unit
	}
	if k.Left == 0 {
		k.RetryAfter = micros(max(1, ans.Retry, t.Bucket.Wait(ans.Level, 1)))
		if t.Window.Period > 0 || t.Log.Period > 0 {
			k.RetryAfter = micros(max(1, ans.Retry))
		}
	}
	stored, ttl, err := r.Stored(ctx, name)
	if err != nil {
		return hybridlimit.KeyState{}, err
	}
	k.TTL = max(0, ttl)
	k.Found = ans.Born > 0 || ttl > 0
	if s, ok := wire.DecodeState(stored); ok {
		k.Debited, k.Leased, k.Born = s.Since, s.Out[0]+s.Out[1], time.UnixMicro(s.Born)
	}
	return k, nil
}

// Stored reads the text of a state in Redis, for wire.DecodeState, and its TTL, which is negative if there is no state.
// A log has a TTL and no text. Stored costs two messages and needs no Redis rights beyond those of the scripts.
func (r *Runner) Stored(ctx context.Context, name string) (text string, ttl time.Duration, err error) {
	if !r.Begin() {
		return "", 0, hybridlimit.ErrClosed
	}
	defer r.calls.Done()
	read := redis.NewSliceCmd(ctx, "mget", name) // unlike GET, MGET returns nil for a value that is no string
	ms := redis.NewIntCmd(ctx, "pttl", name)
	for _, cmd := range []redis.Cmder{read, ms} {
		if err := r.within(ctx, func() error { _ = r.sends.Load().loose(ctx, cmd); return cmd.Err() }); err != nil {
			return "", 0, err
		}
	}
	if got := read.Val(); len(got) == 1 {
		text, _ = got[0].(string)
	}
	return text, time.Duration(ms.Val()) * time.Millisecond, nil
}

// Reset gives a key its full limit again, and returns its state before. name is the key's name from lua.Names.State. It
// costs the messages of Look, and one more.
func (r *Runner) Reset(ctx context.Context, name string, limit hybridlimit.Limit) (before hybridlimit.KeyState, err error) {
	if before, err = r.Look(ctx, name, limit); err != nil {
		return before, err
	}
	_, err = r.Batch(ctx, wire.Envelope{}, []wire.Op{{Key: name, Limit: limit, Op: algo.Op{Reset: true}}})
	return before, err
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
