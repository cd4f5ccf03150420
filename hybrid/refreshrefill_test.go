//go:build !race

// One goroutine calls, in virtual time.

package hybrid_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestANewAnswerRefillsNothing checks that the old rate counts up to a change and the new rate from then on, for an upgrade, a
// downgrade, and the way back to the limiter's own limit. In an earlier version of this rule, Redis refilled the time before the
// change at the new rate.
func TestANewAnswerRefillsNothing(t *testing.T) {
	slow, fast := hybridlimit.TokenBucket(1, time.Second, 1000), hybridlimit.TokenBucket(100, time.Second, 1000)
	for _, c := range []struct {
		name          string
		own, from, to hybridlimit.Limit
		left          int64
	}{
		{"up", still(7), slow, fast, 10},
		{"down", still(7), fast, slow, 1000},
		{"to the limiter's", fast, slow, fast, 10},
		{"from the limiter's", slow, slow, fast, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			inModes(t, inMemory, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
				limits := newTable(c.from)
				l := newLimiter(t, b.Client(nil), c.own, hybrid.Config{Mode: mode, LimitFor: limits.limitFor, MaxWait: time.Second})
				time.Sleep(2300 * time.Millisecond)
				for range 1000 {
					ask(t, l, "k", 1)
				}
				drain := func() (got int64) {
					for ask(t, l, "k", 1).Allowed {
						got++
					}
					return got
				}
				drain()
				time.Sleep(5 * time.Second) // leases have ended
				drain()
				time.Sleep(10 * time.Second)
				limits.set("k", c.to)
				invalidate(t, l, "k")
				got := drain()
				if got < c.left*8/10-1 || got > c.left+1 {
					t.Errorf("%d units after ten seconds at the old rate, want %d", got, c.left)
				}
				// From now on the new rate counts.
				time.Sleep(5 * time.Second)
				got = drain()
				if want := c.to.Rate * 5; got < want*8/10-1 || got > want+1 {
					t.Errorf("%d units after five seconds at the new rate, want %d", got, want)
				}
				shutdown(t, l)
				balance(t, l.Stats())
			})
		})
	}
}

// TestChangingAnswersGainNothing compares a key whose limit goes up and down at random with a key that always has the larger
// limit, and with one that always has the smaller, for each algorithm that decides in memory. Changes gain no unit: the key gets
// at most as much as the larger limit. A raised limit admits no less: it gets at least as much as the smaller. Slack: a burst of
// leases and views that a change gives up.
func TestChangingAnswersGainNothing(t *testing.T) {
	kinds := map[string]func(rate, burst int64) hybridlimit.Limit{
		"bucket":  func(rate, burst int64) hybridlimit.Limit { return hybridlimit.TokenBucket(rate, time.Second, burst) },
		"window":  func(rate, _ int64) hybridlimit.Limit { return hybridlimit.FixedWindow(rate, time.Second) },
		"sliding": func(rate, _ int64) hybridlimit.Limit { return hybridlimit.SlidingWindow(rate, time.Second) },
	}
	for name, of := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inPairs(t, seeds(1, 3), func(t *testing.T, rng *rand.Rand) {
				small, large := of(10, 20), of(30, 60)
				limits := newTable(small)
				limits.set("large", large)
				l := lone(t, small, hybrid.Config{LimitFor: limits.limitFor, LimitRefresh: hybridlimit.Never, MaxWait: time.Second})
				got := map[string]int64{}
				for i, c := range trafficOf(rng, 40, 1, 3000) {
					time.Sleep(c.after)
					if i%97 == 0 {
						limits.set("k", [...]hybridlimit.Limit{small, large}[rng.IntN(2)])
						invalidate(t, l, "k")
					}
					for _, key := range []string{"k", "large", "small"} {
						got[key] += ask(t, l, key, 1).Granted
					}
				}
				if got["k"] > got["large"]+large.BurstSize() || got["k"] < got["small"]-small.BurstSize() {
					t.Errorf("%d units under changing limits, want %d (the smaller) to %d (the larger)", got["k"], got["small"], got["large"])
				}
				shutdown(t, l)
				balance(t, l.Stats())
			})
		})
	}
}

// TestRaisingAdmitsNoLess compares two keys with equal calls. The limit of one is raised in between.
func TestRaisingAdmitsNoLess(t *testing.T) {
	t.Parallel()
	inPairs(t, seeds(2, 4), func(t *testing.T, rng *rand.Rand) {
		limit := hybridlimit.TokenBucket(20, time.Second, 20+rng.Int64N(50))
		limits := newTable(limit)
		l := lone(t, limit, hybrid.Config{LimitFor: limits.limitFor, LimitRefresh: hybridlimit.Never, MaxWait: time.Second})
		var raised, same int64
		for i, c := range trafficOf(rng, 20, 1, 2000) {
			time.Sleep(c.after)
			if i%200 == 100 {
				limit.Rate, limit.Burst = limit.Rate+rng.Int64N(4), limit.Burst+rng.Int64N(20)
				limits.set("raised", limit)
				invalidate(t, l, "raised")
			}
			raised += ask(t, l, "raised", 1).Granted
			same += ask(t, l, "same", 1).Granted
		}
		if raised < same {
			t.Errorf("%d units under a limit that was raised, %d under the same limit", raised, same)
		}
	})
}
