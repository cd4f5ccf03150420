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

// Semaphore is the usual limit of calls in flight on Redis: a sorted set for each
// key, with a member for each running call. The score is the time at which the call
// counts as dead. A call is a message to acquire and one to release, and one more for
// each third of Lease that it runs. Times are Redis's.
type Semaphore struct {
	Redis redis.UniversalClient
	Limit int64         // calls of a key
	Lease time.Duration // a call without a renewal ends after it

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
func (s *Semaphore) Acquire(ctx context.Context, key string) (release func(), ok bool, err error) {
	var raw [12]byte
	rand.Read(raw[:]) // never fails
	id := hex.EncodeToString(raw[:])
	s.messages.Add(1)
	got, err := acquire.Run(ctx, s.Redis, []string{key}, id, s.Limit, s.Lease.Microseconds()).Int64()
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
		s.Redis.ZRem(context.Background(), key, id)
	}), true, nil
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
		s.messages.Add(1)
		left, err := renew.Run(context.Background(), s.Redis, []string{key}, id, s.Lease.Microseconds()).Int64()
		if err == nil && left == 0 || errors.Is(err, redis.ErrClosed) {
			return
		}
	}
}

// Messages returns the number of messages so far.
func (s *Semaphore) Messages() int64 { return s.messages.Load() }
