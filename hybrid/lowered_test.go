package hybrid_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
)

// TestLoweredLimits checks that a limit which is lowered below its use admits alike in the three packages and in each mode: use
// that was legal is no debt, and what is leased ends with the old limit. It counts what is admitted at once, and in the next two
// periods.
func TestLoweredLimits(t *testing.T) {
	type limiter interface {
		hybridlimit.Limiter
		SetLimit(hybridlimit.Limit) error
	}
	const period = 3 * time.Second
	for _, test := range []struct {
		name      string
		high, low hybridlimit.Limit
		used      int
		want      [3]int
		less      int // units of a bucket that a lease or a round trip may cost
	}{
		{"fixed window", hybridlimit.FixedWindow(20, period), hybridlimit.FixedWindow(4, period), 12, [3]int{0, 4, 4}, 0},
		{"fixed window, with room", hybridlimit.FixedWindow(20, period), hybridlimit.FixedWindow(15, period), 12, [3]int{3, 15, 15}, 0},
		{"sliding window", hybridlimit.SlidingWindow(20, period), hybridlimit.SlidingWindow(4, period), 12, [3]int{0, 0, 4}, 0},
		{"token bucket", hybridlimit.TokenBucket(4, period, 20), hybridlimit.TokenBucket(4, period, 4), 12, [3]int{4, 4, 4}, 2},
		{"leaky bucket", hybridlimit.LeakyBucket(4, period, 20), hybridlimit.LeakyBucket(4, period, 4), 20, [3]int{0, 4, 4}, 1},
	} {
		run := func(name string, make func(t *testing.T, b *redistest.Bubble) limiter) {
			t.Run(test.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := make(t, redistest.NewBubble(t))
					time.Sleep(5 * time.Second)
					// The begin of a window, by Redis's clock.
					time.Sleep(time.Until(time.Now().Truncate(period).Add(period + 10*time.Millisecond)))
					for range test.used { // with a demand that leases ahead
						ask(t, l, "k", 1)
						time.Sleep(200 * time.Millisecond / time.Duration(test.used))
					}
					if err := l.SetLimit(test.low); err != nil {
						t.Fatal(err)
					}
					var got [3]int
					for i := range got {
						for range 30 {
							if ask(t, l, "k", 1).Allowed {
								got[i]++
							}
						}
						time.Sleep(time.Until(time.Now().Truncate(period).Add(period + 10*time.Millisecond)))
					}
					if slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return got[i] > test.want[i] || got[i] < test.want[i]-test.less }) {
						t.Errorf("%d of 20 used, then %v is in force: %v admitted, want %v", test.used, test.low, got, test.want)
					}
				})
			})
		}
		run("local", func(t *testing.T, _ *redistest.Bubble) limiter {
			l, err := local.New(test.high, local.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return l
		})
		run("global", func(t *testing.T, b *redistest.Bubble) limiter {
			l, err := global.New(b.Client(nil), test.high, global.Config{Name: "g"})
			if err != nil {
				t.Fatal(err)
			}
			return l
		})
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			run(mode.String(), func(t *testing.T, b *redistest.Bubble) limiter {
				return newLimiter(t, b.Client(nil), test.high, hybrid.Config{Mode: mode})
			})
		}
	}
}
