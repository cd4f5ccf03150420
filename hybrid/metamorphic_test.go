package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
	"github.com/hybridlimit/hybridlimit/local"
)

// Relations between runs, not between a run and a figure. All of them in
// virtual time: the same traffic meets the same limiter at the same moments,
// and the link to Redis takes none.

// inPairs runs f for some seeds, each with a source of its own.
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

// wish is a call of some traffic.
type wish struct {
	after time.Duration // since the one before
	n     int64
}

// trafficOf asks for about load times what a limit of so many units a second
// gives, in calls of 1 to most units, none at a whole multiple of a tick. Half
// of the calls are for long runs.
func trafficOf(rng *rand.Rand, perSecond float64, most int64, calls int) []wish {
	if !testenv.Long() {
		calls /= 2
	}
	load := 0.3 + 2*rng.Float64()
	out := make([]wish, calls)
	for i := range out {
		n := 1 + rng.Int64N(most)
		gap := rng.ExpFloat64() * float64(n) / (load * perSecond) * 1e9
		out[i] = wish{time.Duration(min(gap, 3e9)) + 7, n}
	}
	return out
}

// lone is a limiter of this process alone that knows it is.
func lone(t *testing.T, limit hybridlimit.Limit, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := newLimiter(t, redistest.NewBubble(t).Client(nil), limit, cfg)
	time.Sleep(2300 * time.Millisecond)
	return l
}

// One process is local: with costs of one unit, a process alone is never ahead
// of local.Limiter, and falls behind it, from one full bucket to the next, by no
// more than
//
//   - the units that are held, that a lease let expire, or that came too late
//     (Stats.Held, Expired, Lost): they have been taken from the bucket;
//   - in the modes with leases, half a burst: while a lease is in the ledger,
//     for up to two seconds, the bucket refills to what it lacks of full, and a
//     lease takes at most half of what is left;
//   - what comes back in T and two ticks, after which it looks again when it
//     was denied, and a unit for the rounding of that: Redis's bucket is full,
//     and what would come back to it lost, until it hears of the first units
//     that were taken. That is so each time it is full.
//
// In ModeExact every decision is the same.
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
				var mine, theirs, differ, before int64 // before: how far behind when the bucket was last full
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

// However a call for n units is split, no more is admitted than the bucket
// holds.
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
				time.Sleep(time.Second) // Stats is to the unit at a quiet moment
				for _, l := range []*hybrid.Limiter{whole, parts} {
					balance(t, l.Stats())
				}
			})
		})
	}
}

// AllowAll of one limit is AllowN, and so is AllowLimit with the limit that the
// key has: unit for unit.
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
					// Two hubs tick at different moments, so that one may lease, or look
					// again, where the other does not yet: single decisions may differ, and
					// all that follow from them, but not what they come to.
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

// Raising the limit admits no less than leaving it, where all calls cost the
// same, within what TestOneProcessIsLocal allows for.
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
