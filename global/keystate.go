package global

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// KeyState is what Redis has of a key at the moment at which it is read.
// Nothing is changed by reading it. Durations in JSON are nanoseconds.
type KeyState struct {
	// Limit is the one that the figures are counted by: Redis keeps none.
	Limit hybridlimit.Limit `json:"limit"`
	// Found says whether there is a state. Without one nothing is used.
	Found bool `json:"found"`
	// Left is the units that a call could take now.
	Left int64 `json:"left"`
	// Debt is the units beyond the limit, rounded up. 0: none.
	Debt int64 `json:"debt"`
	// RetryAfter is how long until one unit can be had. 0: now.
	RetryAfter time.Duration `json:"retry_after_ns"`
	// ResetAfter is how long until nothing is used any more.
	ResetAfter time.Duration `json:"reset_after_ns"`
	// Debited is the units debited since Born, or since the last Reset. A log
	// does not count them.
	Debited int64 `json:"debited"`
	// Leased is the units that processes hold by the ledger; others may be
	// leased besides, which it need not know.
	Leased int64 `json:"leased"`
	// Born is when the state began, by Redis's clock; a log does not say. The
	// zero Time: not known.
	Born time.Time `json:"born,omitzero"`
	// TTL is after how long Redis forgets it unless it is used.
	TTL time.Duration `json:"ttl_ns"`
}

// Noun is what a limit counts with: "bucket", "queue", "window" or "log".
func (k KeyState) Noun() string {
	switch k.Limit.Algorithm {
	case hybridlimit.AlgLeakyQueue:
		return "queue"
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow:
		return "window"
	case hybridlimit.AlgSlidingLog:
		return "log"
	}
	return "bucket"
}

// String is one sentence for people: "allowed because the bucket has 12 of 100
// units left".
func (k KeyState) String() string {
	noun, most := k.Noun(), k.Limit.BurstSize()
	if static(k.Limit.Algorithm) {
		return fmt.Sprintf("Redis is not asked because the limit is %v", k.Limit)
	}
	switch {
	case !k.Found:
		return fmt.Sprintf("allowed because Redis has no %s of the key: it was never used, or is full again", noun)
	case k.RetryAfter == 0:
		return fmt.Sprintf("allowed because the %s has %d of %d units left", noun, k.Left, most)
	case k.Debt > 0:
		return fmt.Sprintf("denied for %v because the %s is %s beyond the limit", k.RetryAfter, noun, units(k.Debt))
	}
	return fmt.Sprintf("denied for %v because none of the %d units of the %s is left", k.RetryAfter, most, noun)
}

func units(n int64) string {
	if n == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", n)
}

// Look reads what Redis has of a key, whose name is that of lua.Names.State,
// under a limit that counts. It costs three messages and writes nothing.
func (r *Runner) Look(ctx context.Context, name string, limit hybridlimit.Limit) (KeyState, error) {
	t, err := newTerms(limit)
	if err != nil {
		return KeyState{}, err
	}
	k := KeyState{Limit: limit}
	if t.static() {
		k.Left = limit.BurstSize()
		return k, nil
	}
	reply, err := r.Batch(ctx, wire.Envelope{}, []wire.Op{{Key: name, Limit: limit}}) // asks for nothing: a peek
	if err != nil {
		return KeyState{}, err
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
		return KeyState{}, err
	}
	k.TTL = max(0, ttl)
	k.Found = ans.Born > 0 || ttl > 0
	if s, ok := wire.DecodeState(stored); ok {
		k.Debited, k.Leased, k.Born = s.Since, s.Out[0]+s.Out[1], time.UnixMicro(s.Born)
	}
	return k, nil
}

// Stored reads the text under which Redis keeps a key, for wire.DecodeState, and
// how long it will: negative if there is none. Of a log there is a TTL and no
// text. It costs two messages, and needs no right that the scripts do not.
func (r *Runner) Stored(ctx context.Context, name string) (text string, ttl time.Duration, err error) {
	if !r.begin() {
		return "", 0, hybridlimit.ErrClosed
	}
	defer r.calls.Done()
	read := redis.NewSliceCmd(ctx, "mget", name) // nothing, not an error, where it is no text
	ms := redis.NewIntCmd(ctx, "pttl", name)
	for _, cmd := range []redis.Cmder{read, ms} {
		if err := r.within(ctx, func() error { _ = r.process(ctx, cmd); return cmd.Err() }); err != nil {
			return "", 0, err
		}
	}
	if got := read.Val(); len(got) == 1 {
		text, _ = got[0].(string)
	}
	return text, time.Duration(ms.Val()) * time.Millisecond, nil
}

// Inspect reads what Redis has of key, and takes nothing; its String says what
// a call for one unit would be told, and why. It costs three messages.
func (l *Limiter) Inspect(ctx context.Context, key string) (KeyState, error) {
	t, err := l.of(key, 1)
	if err != nil {
		return KeyState{}, err
	}
	_, name := l.place(key)
	bounded, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	k, err := l.runner.Look(bounded, name, t.limit)
	if err != nil {
		_, err = l.unavailable(ctx, hybridlimit.Result{}, 0, err)
		return KeyState{}, err
	}
	return k, nil
}
