package circuit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// TestQueueing checks that a call in the queue of a healthy Redis is not slow, that a longer one is, and that the open time
// grows with the queue.
func TestQueueing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := 2 * time.Second
		b := newBreaker(t, breaker.Config{})
		b.Queueing(func() time.Duration { return queue })
		b.SetRandom(func(n int64) int64 { return n - 1 })
		for range 9 {
			begin(t, b).End(1400*time.Millisecond, nil)
		}
		want(t, b, breaker.Closed)
		for range 2 {
			begin(t, b).End(6*time.Second, nil) // 1.5 s and three of the shortest round trips are permitted
		}
		want(t, b, breaker.Closed)
		begin(t, b).End(6*time.Second, nil)
		want(t, b, breaker.Open)
		if got := b.RetryIn(); got != 3*time.Second-1 {
			t.Errorf("open for %v", got)
		}
		time.Sleep(3 * time.Second)
		c := begin(t, b)
		if got := b.RetryIn(); got != 2*time.Second {
			t.Errorf("the probe counts as lost after %v", got)
		}
		queue = 0
		if got := b.RetryIn(); got != time.Second {
			t.Errorf("the probe counts as lost after %v without a queue", got)
		}
		c.End(150*time.Millisecond, nil) // near, if the shortest was 1.4 s: SlowCall alone counts
		want(t, b, breaker.Open)
	})
}

// TestQueueingWithoutSlowCall checks that a queue does not bring SlowCall back.
func TestQueueingWithoutSlowCall(t *testing.T) {
	b := newBreaker(t, breaker.Config{SlowCall: -1, Failures: 1})
	b.Queueing(func() time.Duration { return time.Second })
	begin(t, b).End(time.Hour, nil)
	want(t, b, breaker.Closed)
}
