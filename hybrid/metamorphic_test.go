package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/local"
)

// The tests of this file compare runs with each other, not with fixed figures. All runs
// are in virtual time: the same traffic reaches the limiters at the same moments, and
// the link to Redis takes no time.

// seeds returns full if the tests take their full form, else short.
func seeds(short, full uint64) uint64 {
	if testenv.Full() {
		return full
	}
	return short
}

// inPairs runs f for several seeds, each with its own source of random numbers.
func inPairs(t *testing.T, runs uint64, f func(t *testing.T, rng *rand.Rand)) {
	seed := testenv.Seed(t)
	if testenv.Long() {
		runs *= 50
	}
	for i := range runs {
		t.Run(fmt.Sprintf("HYBRIDLIMIT_SEED=%d", seed+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, rand.New(rand.NewPCG(seed+i, 0))) })
		})
	}
}

// wish is one call of the traffic.
type wish struct {
	after time.Duration // the previous call
	n     int64
}

// trafficOf returns calls of 1 to most units. Together they ask for about load times
// perSecond units a second, where load is random. All calls come at whole µs, as
// Redis's clock has them: a unit that is refilled inside a µs is there for Redis at its
// end only. No call comes at a whole multiple of a tick. Short runs make half of the
// calls.
func trafficOf(rng *rand.Rand, perSecond float64, most int64, calls int) []wish {
	if !testenv.Long() {
		calls /= 2
	}
	load := 0.3 + 2*rng.Float64()
	out := make([]wish, calls)
	var at time.Duration
	for i := range out {
		n := 1 + rng.Int64N(most)
		gap := rng.ExpFloat64() * float64(n) / (load * perSecond) * 1e6
		after := (time.Duration(min(gap, 3e6)) + 1) * time.Microsecond
		if (at+after)%time.Millisecond == 0 {
			after += time.Microsecond
		}
		at += after
		out[i] = wish{after, n}
	}
	return out
}

// lone returns a limiter of a process that is alone, after it knows that N is 1.
func lone(t *testing.T, limit hybridlimit.Limit, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := newLimiter(t, redistest.NewBubble(t).Client(nil), limit, cfg)
	time.Sleep(2300 * time.Millisecond)
	return l
}

// TestOneProcessIsLocal compares a process that is alone with local.Limiter, for costs of
// one unit. The process is never ahead of local.Limiter. From one full bucket to the next,
// it falls behind by at most
//
//   - the units that are held, that expired with a lease, or that came too late
//     (Stats.Held, Expired, Lost): they have been taken from the bucket;
//   - in the modes with leases, half a burst: while a lease is in the ledger, for up to
//     two seconds, the bucket refills only to full minus the lease, and a lease takes at
//     most half of the units that are left;
//   - the refill of T and two ticks, and one unit for rounding. A denied process looks
//     again after that time. Redis's bucket is full until Redis is told of the first
//     units, and the refill until then is lost. This happens each time the bucket is
//     full.
//
// In ModeExact all decisions are equal.
func TestOneProcessIsLocal(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			inPairs(t, 2, func(t *testing.T, rng *rand.Rand) {
				rate, burst := 1+rng.Int64N(200), 1+rng.Int64N(100)
				limit := hybridlimit.TokenBucket(rate, time.Second, burst)
				h := lone(t, limit, hybrid.Config{Mode: mode, MaxWait: time.Second})
				l, err := local.New(limit, local.Config{})
				if err != nil {
					t.Fatal(err)
				}
				var mine, theirs, differ, before int64 // before: how far mine was behind when the bucket was last full
				for i, c := range trafficOf(rng, float64(rate), 1, 600) {
					time.Sleep(c.after)
					if must(t)(l.Peek(t.Context(), "k")).Remaining == burst {
						before = theirs - mine
					}
					a, b := ask(t, h, "k", 1), ask(t, l, "k", 1)
					mine, theirs = mine+a.Granted, theirs+b.Granted
					if a.Allowed != b.Allowed {
						differ++
					}
					s := h.Stats()
					slack := 1 + (rate*60+999)/1000
					switch mode {
					case hybrid.ModeAuto, hybrid.ModeStrict:
						slack += burst / 2
					case hybrid.ModeExact:
						slack = 0
					}
					if behind := theirs - mine; behind-before > s.Expired+s.Lost+s.Held+slack || behind < 0 {
						t.Fatalf("%v, call %d: local admitted %d, hybrid %d (%d less when the bucket was last full), expired %d, lost %d, held %d", limit, i, theirs, mine, before, s.Expired, s.Lost, s.Held)
					}
				}
				if mode == hybrid.ModeExact && differ > 0 {
					t.Errorf("%d decisions differ", differ)
				}
			})
		})
	}
}

// TestSplittingNeverAdmitsMore checks that no more is admitted than the bucket holds,
// whether a call for n units is whole or split into calls for one unit.
func TestSplittingNeverAdmitsMore(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			inPairs(t, 1, func(t *testing.T, rng *rand.Rand) {
				rate, burst := 1+rng.Int64N(100), 4+rng.Int64N(60)
				limit := hybridlimit.TokenBucket(rate, time.Second, burst)
				cfg := hybrid.Config{Mode: mode, MaxWait: time.Second}
				whole, parts := lone(t, limit, cfg), lone(t, limit, cfg)
				start := time.Now()
				var a, b int64
				for i, c := range trafficOf(rng, float64(rate), min(8, burst), 300) {
					time.Sleep(c.after)
					a += ask(t, whole, "k", c.n).Granted
					for range c.n {
						b += ask(t, parts, "k", 1).Granted
					}
					most := burst + int64(time.Since(start).Seconds()*float64(rate))
					if a > most || b > most {
						t.Fatalf("call %d: %d whole, %d in parts, of %d", i, a, b, most)
					}
				}
				time.Sleep(time.Second) // Stats is exact when nothing is in flight
				for _, l := range []*hybrid.Limiter{whole, parts} {
					balance(t, l.Stats())
				}
			})
		})
	}
}

// TestVerbsAreAllowN checks that AllowAll of one limit, and AllowLimit with the key's own
// limit, admit as AllowN does.
func TestVerbsAreAllowN(t *testing.T) {
	for _, mode := range modes {
		for name, do := range map[string]func(*testing.T, *hybrid.Limiter, hybridlimit.Limit, int64) (hybridlimit.Result, error){
			"AllowAll": func(t *testing.T, l *hybrid.Limiter, _ hybridlimit.Limit, n int64) (hybridlimit.Result, error) {
				return hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "k", N: n})
			},
			"AllowLimit": func(t *testing.T, l *hybrid.Limiter, limit hybridlimit.Limit, n int64) (hybridlimit.Result, error) {
				return l.AllowLimit(t.Context(), "k", n, limit)
			},
		} {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				inPairs(t, 1, func(t *testing.T, rng *rand.Rand) {
					rate, burst := 1+rng.Int64N(100), 4+rng.Int64N(60)
					limit := hybridlimit.TokenBucket(rate, time.Second, burst)
					cfg := hybrid.Config{Mode: mode, MaxWait: time.Second}
					one, other := lone(t, limit, cfg), lone(t, limit, cfg)
					var a, b int64
					for _, c := range trafficOf(rng, float64(rate), min(4, burst), 300) {
						time.Sleep(c.after)
						x := ask(t, one, "k", c.n)
						y := must(t)(do(t, other, limit, c.n))
						a, b = a+x.Granted, b+y.Granted
					}
					time.Sleep(time.Second)
					s, z := one.Stats(), other.Stats()
					// Two hubs tick at different moments, so one may lease or look again
					// before the other. Single decisions may then differ, with their
					// consequences, but the sums agree within this bound.
					if d := a - b; max(d, -d) > s.Expired+s.Lost+z.Expired+z.Lost+burst/2+rate/10+4 {
						t.Errorf("%v: %d and %d admitted\n%+v\n%+v", limit, a, b, s, z)
					}
					balance(t, s)
					balance(t, z)
				})
			})
		}
	}
}

// TestRaisingNeverAdmitsLess checks that a raised limit admits no less than an unchanged
// one, within the tolerance of TestOneProcessIsLocal. All calls cost the same.
func TestRaisingNeverAdmitsLess(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			inPairs(t, 1, func(t *testing.T, rng *rand.Rand) {
				rate, burst := 1+rng.Int64N(100), 1+rng.Int64N(60)
				cfg := hybrid.Config{Mode: mode, MaxWait: time.Second}
				limit := hybridlimit.TokenBucket(rate, time.Second, burst)
				left, raised := lone(t, limit, cfg), lone(t, limit, cfg)
				var a, b int64
				for i, c := range trafficOf(rng, float64(rate), 1, 500) {
					time.Sleep(c.after)
					if i%100 == 50 {
						rate, burst := rate*int64(1+i/100), burst+int64(i/10)
						if err := raised.SetLimit(hybridlimit.TokenBucket(rate, time.Second, burst)); err != nil {
							t.Fatal(err)
						}
					}
					a += ask(t, left, "k", 1).Granted
					b += ask(t, raised, "k", 1).Granted
					s := raised.Stats()
					if slack := 1 + (rate*60+999)/1000 + burst/2; a-b > s.Expired+s.Lost+s.Held+slack {
						t.Fatalf("call %d: %d admitted by %v, %d after raising it; %+v", i, a, limit, b, s)
					}
				}
				time.Sleep(time.Second)
				balance(t, raised.Stats())
			})
		})
	}
}
