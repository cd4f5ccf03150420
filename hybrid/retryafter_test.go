package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestRetryAfterIsRight checks that a call that comes at its RetryAfter is admitted, if no other process calls: after the first
// denial and after later ones, in each mode and algorithm. Cause: under a sliding window hybrid named the end of the window, when
// nothing of it has faded yet.
func TestRetryAfterIsRight(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]hybridlimit.Limit{
		"bucket": hybridlimit.TokenBucket(5, time.Second, 7), "slow bucket": hybridlimit.TokenBucket(1, 10*time.Second, 3),
		"leaky bucket": hybridlimit.LeakyBucket(5, time.Second, 7), "queue": hybridlimit.LeakyQueue(5, time.Second, 4),
		"window": hybridlimit.FixedWindow(5, 3*time.Second), "sliding": hybridlimit.SlidingWindow(5, 3*time.Second),
		"sliding of 1": hybridlimit.SlidingWindow(1, 4*time.Second), "log": hybridlimit.SlidingLog(5, 3*time.Second), "from use": hybridlimit.WindowFromUse(5, 3*time.Second),
	} {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			t.Run(fmt.Sprint(name, ", ", mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLimiter(t, redistest.NewBubble(t).Client(nil), limit, hybrid.Config{Mode: mode})
					time.Sleep(3 * time.Second)
					for i := range 12 {
						key := fmt.Sprint("k", i%2)
						time.Sleep(time.Duration(i*371) * time.Millisecond)
						res := ask(t, l, key, 1)
						for res.Allowed {
							res = ask(t, l, key, 1)
						}
						for range i % 3 { // a later denial
							time.Sleep(res.RetryAfter / 3)
							if res = ask(t, l, key, 1); res.Allowed {
								t.Fatalf("round %d: admitted before the RetryAfter", i)
							}
						}
						told := res.RetryAfter
						time.Sleep(told)
						if res = ask(t, l, key, 1); !res.Allowed {
							t.Errorf("round %d: denied after the told %v, and told %v now (%v)", i, told, res.RetryAfter, res.Source)
						}
					}
				})
			})
		}
	}
}

// TestPeekAfterCancel checks that a reservation of an earlier window that is cancelled adds nothing to the units of this window,
// before Redis has heard of it as after.
func TestPeekAfterCancel(t *testing.T) {
	t.Parallel()
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(100, 2*time.Second), hybridlimit.FixedWindow(100, time.Minute)} {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			t.Run(fmt.Sprint(limit, ", ", mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLimiter(t, redistest.NewBubble(t).Client(nil), limit, hybrid.Config{Mode: mode})
					time.Sleep(time.Until(time.Now().Truncate(limit.Period).Add(2*limit.Period + 1200*time.Millisecond)))
					r, err := l.Reserve(t.Context(), "k", 100)
					if err != nil || !r.Allowed {
						t.Fatalf("%+v, %v", r, err)
					}
					time.Sleep(time.Until(time.Now().Truncate(limit.Period).Add(limit.Period + 300*time.Millisecond)))
					var used int64
					for range 90 {
						used += ask(t, l, "k", 1).Granted
					}
					if err := r.Cancel(t.Context()); err != nil {
						t.Fatal(err)
					}
					for range 2 {
						l.Stats() // it gives the sync of Cancel the time to be on its way
						if res := must(t)(l.Peek(t.Context(), "k")); res.Remaining > 100-used {
							t.Errorf("%d units are left of 100, of which %d are used", res.Remaining, used)
						}
						time.Sleep(200 * time.Millisecond)
					}
				})
			})
		}
	}
}
