package ratesync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// TestCrowd checks a Redis that is busy with a large fleet. An attempt has the time of the queue, no message is sent twice,
// and a caller leaves its op to the lane.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := 2 * time.Second
		w := newWorld(t, breaker.Config{SlowCall: -1}, func(c *ratesync.Config) {
			c.Queueing = func(ops int64) time.Duration { return queue * time.Duration(max(ops, 1)) }
		})
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if err := wait(ctx, 1900*time.Millisecond); err != nil {
				return wire.Reply{}, err
			}
			return replyTo(a), nil
		}
		if !w.Crowded() || w.Timeout() != queue {
			t.Errorf("crowded %t, time-out %v", w.Crowded(), w.Timeout())
		}
		a, began := newItem(t, "a", 7), now()
		w.Exchange(t.Context(), 0, a, 20*time.Millisecond)
		if got := now().Sub(began); got != 0 {
			t.Errorf("the caller had to wait for %v", got)
		}
		time.Sleep(2 * time.Second)
		w.wantAttempts(1)
		if got := a.account(); got != [4]int64{0, 0, 7, 0} {
			t.Errorf("pending, in flight, paid, lost: %v", got)
		}
		queue = timeout
		if w.Crowded() || w.Timeout() != timeout {
			t.Errorf("crowded %t, time-out %v, of a smaller fleet", w.Crowded(), w.Timeout())
		}
	})
}
