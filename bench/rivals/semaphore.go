package rivals

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var sortedSet = InFlightRival{
	Name: "sorted-set", What: "ZADD and ZREM of one member a call",
	Open: func(env Env) (InFlight, error) {
		n, err := permitsOf(env.Limit)
		return &Semaphore{Redis: env.Redis, Limit: n, Lease: 10 * time.Second}, err
	},
}

// Semaphore is the usual limit of calls in flight on Redis: a sorted set for each key, with a member for each running
// call. The score is the time at which the call counts as dead. A call is a message to acquire and one to release, and
// one more for each third of Lease that it runs. Times are Redis's.
//
// The limit does not hold for a call that cannot renew its lease: it runs on, and its place is free. A call whose
// answer is lost may keep its place until the lease ends.
type Semaphore struct {
	Redis redis.UniversalClient
	Limit int64         // calls of a key
	Lease time.Duration // a call without a renewal ends after it; at least a millisecond

	messages atomic.Int64
}

// acquire adds a call if there is room. It drops the calls whose lease has ended.
var acquire = redis.NewScript(`
local t = redis.call('TIME')
local now, lease = t[1] * 1000000 + t[2], tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + lease), ARGV[1])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lease / 1000))
return 1`)

// renew moves the end of a call's lease. It returns 0 for a call that is dead.
var renew = redis.NewScript(`
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
local t = redis.call('TIME')
redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', t[1] * 1000000 + t[2] + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ARGV[2] / 1000))
return 1`)

// Acquire reports whether a call may run. If so, release must be called at its end.
// The end of ctx does not end a call that runs.
func (s *Semaphore) Acquire(ctx context.Context, key string) (release func(), ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	var raw [12]byte
	rand.Read(raw[:]) // never fails
	id := hex.EncodeToString(raw[:])
	got, err := s.run(ctx, acquire, key, id, s.Limit, s.Lease.Microseconds())
	if err != nil || got == 0 {
		return nil, false, err
	}
	done := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() { s.keep(key, id, done) })
	return sync.OnceFunc(func() {
		close(done)
		renewing.Wait()
		s.messages.Add(1)
		s.Redis.ZRem(context.Background(), key, id) // after an error, the lease ends by itself
	}), true, nil
}

// run sends a script, and counts its messages: Redis may have to be told the text.
func (s *Semaphore) run(ctx context.Context, script *redis.Script, key string, args ...any) (int64, error) {
	s.messages.Add(1)
	got, err := script.EvalSha(ctx, s.Redis, []string{key}, args...).Int64()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		s.messages.Add(1)
		return script.Eval(ctx, s.Redis, []string{key}, args...).Int64()
	}
	return got, err
}

// keep renews a call until it ends, or until it is dead.
func (s *Semaphore) keep(key, id string, done <-chan struct{}) {
	t := time.NewTicker(s.Lease / 3)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
		}
		left, err := s.run(context.Background(), renew, key, id, s.Lease.Microseconds())
		if err == nil && left == 0 || errors.Is(err, redis.ErrClosed) {
			return
		}
	}
}

// Messages returns the number of messages so far.
func (s *Semaphore) Messages() int64 { return s.messages.Load() }

// Close does nothing: the client is the caller's.
func (*Semaphore) Close() error { return nil }
