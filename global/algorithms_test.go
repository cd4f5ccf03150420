package global_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
)

var algorithms = []hybridlimit.Limit{
	hybridlimit.TokenBucket(10, time.Second, 5), hybridlimit.LeakyBucket(10, time.Second, 5), hybridlimit.LeakyQueue(10, time.Second, 5),
	hybridlimit.FixedWindow(5, time.Second), hybridlimit.SlidingWindow(5, time.Second), hybridlimit.SlidingLog(5, time.Second),
	hybridlimit.SlidingWindow(7, 3*time.Second), hybridlimit.SlidingLog(7, 3*time.Second), hybridlimit.TokenBucket(3, 7*time.Second, 2),
}

// TestRetryAndResetAreExact checks that a denied call is denied 1 µs before its RetryAfter
// and admitted at it. After ResetAfter the key is full.
func TestRetryAndResetAreExact(t *testing.T) {
	for _, limit := range algorithms {
		t.Run(limit.String(), func(t *testing.T) {
			inBubble(t, limit, global.Config{}, defaults, func(t *testing.T, s *scene) {
				rng := rand.New(rand.NewPCG(7, uint64(limit.Algorithm)))
				denials := 0
				for range 200 {
					n := 1 + rng.Int64N(min(limit.BurstSize(), 3))
					res := allow(t, s.Limiter, "k", n)
					if res.Allowed {
						time.Sleep(time.Duration(rng.Int64N(int64(limit.Period / 8))).Truncate(time.Microsecond))
						continue
					}
					denials++
					time.Sleep(res.RetryAfter - time.Microsecond)
					if early := allow(t, s.Limiter, "k", n); early.Allowed {
						t.Fatalf("%d units admitted 1µs before the RetryAfter of %v", n, res.RetryAfter)
					}
					time.Sleep(time.Microsecond)
					if late := allow(t, s.Limiter, "k", n); !late.Allowed {
						t.Fatalf("%d units denied at the RetryAfter of %v: %+v", n, res.RetryAfter, late)
					}
				}
				if denials < 10 {
					t.Errorf("%d denials", denials)
				}
				res, err := s.Peek(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(res.ResetAfter)
				if res := allow(t, s.Limiter, "k", limit.BurstSize()); !res.Allowed || limit.Algorithm == hybridlimit.AlgLeakyQueue && res.Delay != 0 {
					t.Errorf("after the reset: %+v", res)
				}
			})
		})
	}
}

// TestBoundaryBurst counts the units admitted from 10 ms before to 10 ms after the border
// of a window. Only a fixed window admits two bursts.
func TestBoundaryBurst(t *testing.T) {
	for _, tc := range []struct {
		limit hybridlimit.Limit
		most  int64
	}{
		{hybridlimit.FixedWindow(100, time.Second), 200},
		{hybridlimit.SlidingWindow(100, time.Second), 102},
		{hybridlimit.SlidingLog(100, time.Second), 100},
	} {
		inBubble(t, tc.limit, global.Config{}, defaults, func(t *testing.T, s *scene) {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1990 * time.Millisecond)))
			var got int64
			for range 20 { // 10 ms before, 10 ms after
				res, err := s.AllowAtMost(t.Context(), "k", 100)
				if err != nil {
					t.Fatal(err)
				}
				got += res.Granted
				time.Sleep(time.Millisecond)
			}
			if got > tc.most || got < 100 {
				t.Errorf("%v: %d units in 20 ms, want 100 to %d", tc.limit, got, tc.most)
			}
		})
	}
}

// TestQueueDelays checks the delay of each call in a queue.
func TestQueueDelays(t *testing.T) {
	inBubble(t, hybridlimit.LeakyQueue(10, time.Second, 5), global.Config{}, defaults, func(t *testing.T, s *scene) {
		for i := range 7 {
			res := allow(t, s.Limiter, "k", 1)
			if want := time.Duration(i) * 100 * time.Millisecond; res.Allowed != (i < 5) || res.Allowed && res.Delay != want {
				t.Errorf("call %d: %+v, want a delay of %v", i, res, want)
			}
		}
	})
}

// TestStaticLimits checks that LimitFor may return Unlimited and Blocked under any
// algorithm.
func TestStaticLimits(t *testing.T) {
	for _, limit := range algorithms {
		inBubble(t, limit, global.Config{LimitFor: func(key string) hybridlimit.Limit {
			switch key {
			case "staff":
				return hybridlimit.Unlimited()
			case "banned":
				return hybridlimit.Blocked()
			}
			return limit
		}}, defaults, func(t *testing.T, s *scene) {
			for range 10 {
				if res := allow(t, s.Limiter, "staff", 1_000_000); !res.Allowed || res.Source != hybridlimit.SourceStatic {
					t.Errorf("staff: %+v", res)
				}
				if res := allow(t, s.Limiter, "banned", 1); res.Allowed || res.RetryAfter != hybridlimit.Never {
					t.Errorf("banned: %+v", res)
				}
			}
			if res := allow(t, s.Limiter, "k", 1); !res.Allowed || res.Source != hybridlimit.SourceRedis {
				t.Errorf("%+v", res)
			}
		})
	}
}
