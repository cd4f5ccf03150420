package region_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/region"
)

// TestRegionsKeepTheSum plays random loads and faults on real limiters: bursts of calls in any region, ways that are cut,
// slow or lose replies, and processes that are closed and started. All regions together never exceed the limit by more
// than the sum of N·C.
func TestRegionsKeepTheSum(t *testing.T) {
	seed, runs := testenv.Seed(t), 3
	if testenv.Full() {
		runs = 100
	}
	for i := range runs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { keepTheSum(t, rand.New(rand.NewPCG(seed+uint64(i), 3))) })
		})
	}
}

// TestRegionsWithOtherShares gives each region the larger share, by its own configuration: the sum is exceeded, and the
// meter of these tests sees it.
func TestRegionsWithOtherShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.PerSecond(900), func(c *region.Config) {
			c.Shares = map[string]float64{"a": 0.1, "b": 0.1}
			c.Shares[c.Here] = 0.9
		}, 1, 1)
		time.Sleep(8 * time.Second)
		g.run(3*time.Second, "k", 1800, 1800)
		if excess := g.excess(); excess < 900 {
			t.Errorf("excess %.2f", excess)
		}
	})
}

func keepTheSum(t *testing.T, rng *rand.Rand) {
	procs := make([]int, 2+rng.IntN(2))
	for i := range procs {
		procs[i] = 1 + rng.IntN(3)
	}
	rate := 20 + rng.Int64N(400)
	limit := hybridlimit.TokenBucket(rate, time.Second, max(30, rate/3+rng.Int64N(2*rate)))
	mode, escrow := []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeStrict, hybrid.ModeExact}[rng.IntN(4)], []float64{0.1, 0.25, 0.5}[rng.IntN(3)]
	alter := func(c *region.Config) { c.Limiter.Mode, c.Escrow = mode, escrow }
	g := newGlobe(t, limit, alter, procs...)
	time.Sleep(8 * time.Second)
	allowed := 0.0
	for range 40 {
		g.fault(rng)
		var all sync.WaitGroup
		for range 1 + rng.IntN(3) {
			z, key := g.zones[rng.IntN(len(g.zones))], "k"
			n, within := rng.IntN(int(2*limit.BurstSize())), time.Duration(1+rng.IntN(700))*time.Millisecond
			all.Go(func() {
				for range n {
					all.Go(func() { g.call(z, z.procs[n%len(z.procs)], key) })
					time.Sleep(within / time.Duration(n))
				}
			})
		}
		all.Wait()
		if rng.IntN(10) == 0 { // a process leaves, and owes at most C
			z := g.zones[rng.IntN(len(g.zones))]
			allowed += float64(z.procs[0].l.Here().Stats().Credit)
			if rng.IntN(2) == 0 {
				z.procs[0].l.Close()
			} else if err := z.procs[0].l.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			z.procs[0].hub.Close()
			z.procs = z.procs[1:]
			g.add(z, alter)
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
		}
		allowed = max(allowed, 0)
	}
	most := 0.0 // N·C, with the processes that have left
	for _, z := range g.zones {
		most += 2 * 0.025 * float64(z.burst())
	}
	if mode != hybrid.ModeAuto {
		most, allowed = 0, 0
	}
	slack := float64(rate) / 1000 // a call returns up to a round trip after Redis has decided
	if excess := g.excess(); excess > most+allowed+slack {
		t.Errorf("%v, %v, escrow %g: excess %.2f, at most %.2f; %v", limit, mode, escrow, excess, most+allowed+slack, g)
	}
	t.Logf("%v, %v, escrow %g: excess %.2f; %v", limit, mode, escrow, g.excess(), g)
}

// fault changes the ways between regions.
func (g *globe) fault(rng *rand.Rand) {
	var links []*redistest.MemLink
	for _, z := range g.zones {
		for _, p := range z.procs {
			for _, l := range p.far {
				links = append(links, l)
			}
		}
	}
	l := links[rng.IntN(len(links))]
	switch rng.IntN(6) {
	case 0:
		l.Pause()
	case 1:
		for _, l := range links {
			l.Resume()
			l.Script(nil)
			l.Latency(farAway, farAway)
		}
	case 2:
		l.Script(lostReplies(2))
	case 3:
		l.Latency(time.Duration(rng.IntN(300))*time.Millisecond, time.Duration(rng.IntN(300))*time.Millisecond)
	case 4:
		l.CutAll()
	}
}
