package hybrid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestWaitersShareASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		l := newLimiter(t, link.Client(nil), still(1000), hybrid.Config{MaxWait: time.Second})
		link.Latency(5*time.Millisecond, 5*time.Millisecond)
		time.Sleep(500 * time.Millisecond) // the first heartbeat is over
		before := link.Count("EVALSHA").Seen
		start := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if res := ask(t, l, "k", 1); !res.Allowed || res.Source != hybridlimit.SourceRedis {
					t.Errorf("a cold caller: %+v", res)
				}
			})
		}
		wg.Wait()
		if n := link.Count("EVALSHA").Seen - before; n > 2 {
			t.Errorf("50 callers of a cold key cost %d messages, want at most 2", n)
		}
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("they waited for %v at a round trip of 10 ms", took)
		}
	})
}

// TestRemainingOfWaiters checks that callers that wait for one sync all see the units that
// this sync has left.
func TestRemainingOfWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := redistest.NewBubble(t).Link()
		l := newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(1, time.Hour, 100), hybrid.Config{Mode: hybrid.ModeDeferred})
		time.Sleep(2 * time.Second)
		link.Latency(time.Millisecond, time.Millisecond)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if res := ask(t, l, "k", 1); res.Remaining < 90 || res.Remaining > 99 {
					t.Errorf("after %v: %+v", time.Since(start), res)
				}
			})
		}
		wg.Wait()
	})
}

// TestAllowLimitWaitsUnderItsOwn checks that two calls under different limits, which wait
// for one answer, are each decided by their own limit. In an earlier version the larger
// cost was asked for under the smaller limit, and was denied for 285 years.
func TestAllowLimitWaitsUnderItsOwn(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		link := b.Link()
		l := newLimiter(t, link.Client(nil), still(5), patient(hybrid.Config{Mode: mode}))
		time.Sleep(2300 * time.Millisecond)
		link.Latency(20*time.Millisecond, 20*time.Millisecond)
		gold, plain := still(40), still(10)
		var wg sync.WaitGroup
		call := func(after time.Duration, n int64, limit hybridlimit.Limit, want bool) {
			wg.Go(func() {
				time.Sleep(after)
				res := must(t)(l.AllowLimit(t.Context(), "k", n, limit))
				if res.Allowed != want || res.RetryAfter > 100*time.Hour || res.Limit != limit.BurstSize() {
					t.Errorf("%d of %v: %+v", n, limit, res)
				}
			})
		}
		call(0, 1, gold, true)
		call(time.Millisecond, 30, gold, true) // both wait for the first
		call(2*time.Millisecond, 1, plain, true)
		call(200*time.Millisecond, 1, plain, true)
		call(201*time.Millisecond, 39, gold, false)
		call(202*time.Millisecond, 1, plain, true)
		wg.Wait()
		time.Sleep(time.Second)
		shutdown(t, l)
		balance(t, l.Stats())
	})
}
