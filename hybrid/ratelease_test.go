package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// rateFleet is processes with a limiter of leased rates, whose calls are metered together.
type rateFleet struct {
	t     *testing.T
	limit hybridlimit.Limit
	began time.Time
	hubs  []*hybrid.Hub
	all   []*hybrid.RateLeaseLimiter
	links []*redistest.MemLink

	mu       sync.Mutex
	meter    *meter.Bucket
	asked    []int64
	admitted []int64
	sources  map[hybridlimit.Source]int64
	local    int64 // units that the fallback has admitted
}

func newRateFleet(t *testing.T, b *redistest.Bubble, n int, limit hybridlimit.Limit, cfg hybrid.RateLeaseConfig) *rateFleet {
	t.Helper()
	f := &rateFleet{t: t, limit: limit, began: time.Now(), meter: meter.NewBucket(algo.BucketOf(limit)), sources: map[hybridlimit.Source]int64{}}
	for range n {
		link := b.Link()
		h := newHub(t, link.Client(nil), hybrid.HubConfig{FleetSize: n})
		f.add(h, cfg)
		f.links = append(f.links, link)
	}
	return f
}

func (f *rateFleet) add(h *hybrid.Hub, cfg hybrid.RateLeaseConfig) {
	f.t.Helper()
	cfg.Name = "hot"
	l, err := h.RateLeases(f.limit, cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.hubs, f.all, f.asked, f.admitted = append(f.hubs, h), append(f.all, l), append(f.asked, 0), append(f.admitted, 0)
}

// run makes Poisson calls of each process for a time: so many per unit of the rate.
func (f *rateFleet) run(load float64, span time.Duration) {
	var wg sync.WaitGroup
	end, seed := time.Now().Add(span), testenv.Seed(f.t)
	each := float64(time.Second) / (float64(f.limit.Rate) * float64(time.Second) / float64(f.limit.Period) * load / float64(len(f.all)))
	for i, l := range f.all {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for {
				time.Sleep(time.Duration(rng.ExpFloat64() * each))
				if !time.Now().Before(end) {
					return
				}
				f.call(i, l)
			}
		})
	}
	wg.Wait()
}

func (f *rateFleet) call(i int, l *hybrid.RateLeaseLimiter) {
	res, err := l.Allow(context.Background(), "k")
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.t.Error(err)
	}
	f.asked[i]++
	f.sources[res.Source]++
	if res.Allowed {
		f.admitted[i]++
		f.meter.Admit(int64(time.Since(f.began)), 1)
		if res.Source == hybridlimit.SourceFallback {
			f.local++
		}
	} else if res.RetryAfter <= 0 || res.RetryAfter > 4*time.Second || res.Remaining > 0 {
		f.t.Errorf("a denial says %+v", res)
	}
	if res.Remaining < 0 || res.Remaining > res.Limit || res.Limit != f.limit.Burst || res.ResetAfter < 0 || res.Policy != "hot" {
		f.t.Errorf("%+v", res)
	}
}

func (f *rateFleet) sums() (asked, admitted, ops int64) {
	for i, l := range f.all {
		asked, admitted, ops = asked+f.asked[i], admitted+f.admitted[i], ops+l.Stats().Ops
	}
	return asked, admitted, ops
}

// TestRateLeases runs a fleet on a hot key with a burst of a second. Nothing is admitted above the bound, nearly all of
// the rate is used, the processes have equal parts, and each sends less than one op a second.
func TestRateLeases(t *testing.T) {
	t.Parallel()
	for _, load := range []float64{0.5, 1.5, 10} {
		t.Run(fmt.Sprint(load), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				f := newRateFleet(t, redistest.NewBubble(t), n, hybridlimit.TokenBucket(10*n, time.Second, 10*n), hybrid.RateLeaseConfig{})
				f.run(load, 12*time.Second)
				asked, admitted, ops := f.sums()
				f.run(load, 20*time.Second)
				asked2, admitted2, ops2 := f.sums()
				each := float64(ops2-ops) / n / 20
				used := float64(admitted2-admitted) / min(20*10*n, float64(asked2-asked))
				var sum, squares float64
				for _, a := range f.admitted {
					sum, squares = sum+float64(a), squares+float64(a*a)
				}
				jain := sum * sum / squares / n
				t.Logf("%.2f ops, %.3f of the units, Jain %.3f, excess %.3f, %v", each, used, jain, f.meter.Excess(), f.sources)
				if each > 1.1 || used < 0.95 || jain < 0.95 || f.meter.Excess() > 0.01 || f.sources[hybridlimit.SourceFallback] > 0 {
					t.Error("not as promised")
				}
			})
		})
	}
}

// TestRateLeasesWithoutRedis takes Redis away for a while. Processes go on with their leased rates for at most four
// seconds, and then with the fallback, which says so. The units of the fallback are paid when Redis is back.
func TestRateLeasesWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "hangs", "replies lost"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, rate = 5, 100
				b := redistest.NewBubble(t)
				f := newRateFleet(t, b, n, hybridlimit.TokenBucket(rate, time.Second, rate), hybrid.RateLeaseConfig{})
				f.run(2, 8*time.Second)
				if f.sources[hybridlimit.SourceFallback] > 0 {
					t.Fatalf("without Redis: %v", f.sources)
				}
				switch how {
				case "killed":
					b.Kill()
				case "hangs":
					for _, l := range f.links {
						l.Pause()
					}
				default:
					for _, l := range f.links {
						l.Script(func(int, []string) redistest.Verdict { return redistest.DropReply(redistest.ThenHang) })
					}
				}
				_, before, _ := f.sums()
				f.run(2, 20*time.Second)
				_, after, _ := f.sums()
				if used := float64(after-before) / 20 / rate; used < 0.8 || used > 1.2 || f.sources[hybridlimit.SourceFallback] < 10*rate {
					t.Errorf("without Redis %.2f of the rate is used: %v", used, f.sources)
				}
				if b := f.all[0].Stats().Breaker; b.String() == "closed" {
					t.Errorf("the breaker is %v", b)
				}
				if how == "killed" {
					b.Restart()
				}
				for _, l := range f.links {
					l.Resume()
					l.Script(nil)
				}
				time.Sleep(3 * time.Second)
				f.run(2, 10*time.Second)
				var s hybrid.RateLeaseStats
				for _, l := range f.all {
					one := l.Stats()
					s.Paid, s.Owed, s.Dropped = s.Paid+one.Paid, s.Owed+one.Owed, s.Dropped+one.Dropped
				}
				if local := f.sources[hybridlimit.SourceFallback]; s.Paid == 0 || s.Owed != 0 || s.Dropped != 0 || s.Paid > local {
					t.Errorf("paid %d, owed %d, dropped %d of at most %d", s.Paid, s.Owed, s.Dropped, local)
				}
				if excess := f.meter.Excess(); excess > n+1 { // a share has at least one unit
					t.Errorf("%.2f units above the bound", excess)
				}
			})
		})
	}
}

// TestRateLeasesUnderFaults loses replies and requests, cuts connections and repeats messages. The bound holds, beside
// what the fallback admits.
func TestRateLeasesUnderFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, rate = 5, 200
		f := newRateFleet(t, redistest.NewBubble(t), n, hybridlimit.TokenBucket(rate, time.Second, rate), hybrid.RateLeaseConfig{})
		seed := testenv.Seed(t)
		for i, l := range f.links {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			l.Script(func(int, []string) redistest.Verdict {
				switch rng.IntN(12) {
				case 0:
					return redistest.DropReply(redistest.ThenClose)
				case 1:
					return redistest.DropRequest(redistest.ThenClose)
				case 2:
					return redistest.Duplicate()
				}
				return redistest.Forward()
			})
		}
		f.run(2, 40*time.Second)
		_, admitted, _ := f.sums()
		local := float64(f.sources[hybridlimit.SourceFallback])
		t.Logf("%d admitted, %.0f by the fallback, excess %.2f: %v", admitted, local, f.meter.Excess(), f.sources)
		if f.meter.Excess() > rate+1 || float64(admitted) < 0.8*40*rate {
			t.Errorf("%d admitted, %.2f above the bound", admitted, f.meter.Excess())
		}
	})
}

// TestRateLeasesAfterAWipe clears Redis. The processes that ask again tell it what was leased, so no more than a burst
// is admitted above the bound. internal/ratelease has the rare cases.
func TestRateLeasesAfterAWipe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, rate = 5, 200
		b := redistest.NewBubble(t)
		f := newRateFleet(t, b, n, hybridlimit.TokenBucket(rate, time.Second, rate), hybrid.RateLeaseConfig{})
		f.run(2, 10*time.Second)
		b.Mini.FlushAll()
		_, before, _ := f.sums()
		f.run(2, 10*time.Second)
		_, after, _ := f.sums()
		if excess := f.meter.Excess(); excess > 1.01*rate {
			t.Errorf("%.2f units above the bound, of a burst of %d", excess, rate)
		}
		if used := float64(after-before) / 10 / rate; used < 0.9 {
			t.Errorf("%.2f of the rate is used after it", used)
		}
	})
}

// TestRateLeasesComeBack lets the calls of one process stop. Another one has the whole rate from then on, after three
// seconds.
func TestRateLeasesComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate = 100
		f := newRateFleet(t, redistest.NewBubble(t), 2, hybridlimit.TokenBucket(rate, time.Second, rate), hybrid.RateLeaseConfig{})
		f.run(3, 10*time.Second)
		if s := f.all[0].Stats(); s.Rate < 0.1*rate {
			t.Fatalf("%+v", s)
		}
		f.all, f.asked, f.admitted = f.all[1:], make([]int64, 1), make([]int64, 1)
		f.run(3, 3*time.Second)
		f.admitted[0] = 0
		f.run(3, 5*time.Second)
		if used := float64(f.admitted[0]) / 5 / rate; used < 0.95 || f.meter.Excess() > 0.01 {
			t.Errorf("%.2f of the rate is used, excess %.2f", used, f.meter.Excess())
		}
	})
}

// TestRateLeasesEnd checks that Shutdown gives leases back, so that another process has them at once, and that Close
// lets them end by themselves.
func TestRateLeasesEnd(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"limiter", "hub", "close"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rate = 100
				f := newRateFleet(t, redistest.NewBubble(t), 2, hybridlimit.TokenBucket(rate, time.Second, rate), hybrid.RateLeaseConfig{})
				f.run(1.5, 10*time.Second)
				gone := f.all[0]
				if s := gone.Stats(); s.Rate < 20 || s.Keys != 1 {
					t.Fatalf("%+v", s)
				}
				var err error
				switch how {
				case "limiter":
					err = gone.Shutdown(t.Context())
				case "hub":
					err = f.hubs[0].Shutdown(t.Context())
				default:
					err = gone.Close()
				}
				if err != nil {
					t.Error(err)
				}
				if _, err := gone.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
					t.Errorf("a call after the end: %v", err)
				}
				f.all, f.asked, f.admitted = f.all[1:], make([]int64, 1), make([]int64, 1)
				f.run(3, 3*time.Second)
				used := float64(f.admitted[0]) / 3 / rate
				if left := how != "close"; left != (used > 0.8) {
					t.Errorf("%.2f of the rate is used in the three seconds after it", used)
				}
				f.run(3, 8*time.Second)
				f.admitted[0] = 0
				f.run(3, 5*time.Second)
				if used := float64(f.admitted[0]) / 5 / rate; used < 0.95 || f.meter.Excess() > 0.01 {
					t.Errorf("later %.2f of the rate is used, excess %.2f", used, f.meter.Excess())
				}
			})
		})
	}
}
