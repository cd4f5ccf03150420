package conformance_test

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/local"
)

// refreshing makes a limiter whose LimitFor is asked again only after Invalidate. global asks each time.
var refreshing = map[string]func(t *testing.T, rdb redis.UniversalClient, limit hybridlimit.Limit, limitFor func(string) hybridlimit.Limit) hybridlimit.Limiter{
	"local": func(t *testing.T, _ redis.UniversalClient, limit hybridlimit.Limit, limitFor func(string) hybridlimit.Limit) hybridlimit.Limiter {
		l, err := local.New(limit, local.Config{LimitFor: limitFor, LimitRefresh: hybridlimit.Never})
		return must(t, l, err)
	},
	"global": func(t *testing.T, rdb redis.UniversalClient, limit hybridlimit.Limit, limitFor func(string) hybridlimit.Limit) hybridlimit.Limiter {
		l, err := global.New(rdb, limit, global.Config{Name: "g", LimitFor: limitFor})
		return must(t, l, err)
	},
	"hybrid": func(t *testing.T, rdb redis.UniversalClient, limit hybridlimit.Limit, limitFor func(string) hybridlimit.Limit) hybridlimit.Limiter {
		l, err := hybrid.New(rdb, limit, hybrid.Config{
			Name: "h", LimitFor: limitFor, LimitRefresh: hybridlimit.Never, MaxWait: time.Second,
			Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	},
}

// TestNewAnswersOfLimitFor checks that the packages agree on a key whose limit changes while it is in use: on the limit of each
// call, and on the units admitted by limits that refill nothing. With these, each change shows whether it refills. The limits of
// the window and the queue only rise. Otherwise hybrid may spend leased units until the window ends, and a queue in Redis keeps at
// most two bursts.
func TestNewAnswersOfLimitFor(t *testing.T) {
	type outcome struct {
		limit   int64
		allowed bool
		source  bool // SourceStatic
	}
	of := map[string][]hybridlimit.Limit{
		"bucket": {hybridlimit.TokenBucket(1, 24*time.Hour, 20), hybridlimit.TokenBucket(1, 24*time.Hour, 50), hybridlimit.TokenBucket(2, 48*time.Hour, 7), hybridlimit.Blocked(), hybridlimit.Unlimited()},
		"queue":  {hybridlimit.LeakyQueue(1, 24*time.Hour, 20), hybridlimit.LeakyQueue(1, 24*time.Hour, 50), hybridlimit.LeakyQueue(1, 24*time.Hour, 90), hybridlimit.Blocked()},
		"window": {hybridlimit.FixedWindow(20, 24*time.Hour), hybridlimit.FixedWindow(50, 24*time.Hour), hybridlimit.FixedWindow(90, 24*time.Hour), hybridlimit.Blocked(), hybridlimit.Unlimited()},
		"log":    {hybridlimit.SlidingLog(20, 24*time.Hour), hybridlimit.SlidingLog(50, 24*time.Hour), hybridlimit.SlidingLog(7, 24*time.Hour), hybridlimit.Blocked()},
	}
	for name, limits := range of {
		t.Run(name, func(t *testing.T) {
			seed := testenv.Seed(t)
			var want []outcome
			for _, pkg := range []string{"local", "global", "hybrid"} {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 0))
					now, most := limits[0], limits[0].BurstSize()
					l := refreshing[pkg](t, redistest.NewBubble(t).Client(nil), limits[0], func(string) hybridlimit.Limit { return now })
					time.Sleep(2300 * time.Millisecond)
					var got []outcome
					for range 150 {
						if rng.IntN(8) == 0 {
							next := limits[rng.IntN(len(limits))]
							if size := next.BurstSize(); name == "bucket" || name == "log" || next.Period == 0 || size > most {
								now, most = next, max(most, size)
							}
							if in, ok := l.(interface{ Invalidate(string) error }); ok {
								if err := in.Invalidate("k"); err != nil {
									t.Error(err)
								}
							}
						}
						n := 1 + rng.Int64N(2)
						time.Sleep(10*time.Second + time.Duration(rng.Int64N(int64(time.Second)))) // too rare for leases
						res, err := l.AllowN(t.Context(), "k", n)
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, outcome{res.Limit, res.Allowed, res.Source == hybridlimit.SourceStatic})
					}
					if pkg == "local" {
						want = got
						return
					}
					for i := range want {
						if got[i] != want[i] {
							t.Fatalf("call %d: %s has %+v, local %+v", i, pkg, got[i], want[i])
						}
					}
				})
			}
		})
	}
}
