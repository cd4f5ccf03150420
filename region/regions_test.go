package region_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/region"
)

// The promise of the package, for the load 90 % of which moves from one region to another 80 ms away.
const (
	settled  = 3 * time.Second
	admitted = 0.85 // of the limit, from then on
	messages = 12.0 // a second, key, and pair of regions
)

// TestRegions moves 1.5 times the limit from region to region.
func TestRegions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit
		procs []int
	}{
		{"two regions", hybridlimit.PerSecond(900), []int{2, 2}},
		{"three regions", hybridlimit.PerSecond(900), []int{2, 2, 2}},
		{"many processes", hybridlimit.PerSecond(900), []int{5, 5}},
		{"a small limit", hybridlimit.LeakyBucket(60, time.Second, 0), []int{1, 2, 3}},
		{"a large burst", hybridlimit.TokenBucket(500, time.Second, 2000), []int{2, 2, 2, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGlobe(t, tc.limit, nil, tc.procs...)
				time.Sleep(8 * time.Second) // the permits are learnt
				g.empty("k")
				rate := float64(tc.limit.Rate)
				for hot := range 2 {
					load := make([]float64, len(tc.procs))
					for i := range load {
						load[i] = 0.15 * rate / float64(len(load)-1)
					}
					load[hot] = 1.35 * rate
					g.run(settled, "k", load...)
					units, asks := g.units.Load(), g.asks()
					const span = 5
					g.run(span*time.Second, "k", load...)
					part := float64(g.units.Load()-units) / rate / span
					t.Logf("load in %s: %.3f of the limit; %v", g.zones[hot].name, part, g)
					if part < admitted {
						t.Errorf("load in %s: %.3f of the limit is admitted, want %.2f", g.zones[hot].name, part, admitted)
					}
					for pair, n := range g.asks() {
						if each := float64(n-asks[pair]) / span; each > messages {
							t.Errorf("%s: %.1f messages a second, want at most %.0f", pair, each, messages)
						}
					}
				}
				if excess := g.excess(); excess > g.credit() {
					t.Errorf("excess %.2f, at most %.2f", excess, g.credit())
				}
			})
		})
	}
}

// TestRegionsAlone has calls in one region only, from just below the limit to four times it. The region reaches nearly
// the whole rate.
func TestRegionsAlone(t *testing.T) {
	for _, load := range []float64{0.95, 1.1, 1.5, 4} {
		for _, procs := range [][]int{{2, 1}, {1, 2, 1}} {
			t.Run(fmt.Sprint(load, procs), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := newGlobe(t, hybridlimit.PerSecond(900), nil, procs...)
					time.Sleep(8 * time.Second)
					g.run(settled, "k", 900*load)
					before, calls := g.units.Load(), g.zones[0].calls.Load()
					g.run(5*time.Second, "k", 900*load)
					calls = min(g.zones[0].calls.Load()-calls, 4500)
					part := float64(g.units.Load()-before) / float64(calls)
					if t.Logf("%.3f of what the limit permits; %v", part, g); part < admitted {
						t.Errorf("%.3f of what the limit permits is admitted", part)
					}
				})
			})
		}
	}
}

// TestRegionsWithoutDenials has keys below the share of each region: no region hears of another.
func TestRegionsWithoutDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.PerSecond(900), nil, 2, 2, 2)
		g.run(20*time.Second, "k", 200, 200, 200)
		for _, z := range g.zones {
			if got, calls := z.got.Load(), z.calls.Load(); got != calls {
				t.Errorf("%s: %d of %d calls are admitted", z.name, got, calls)
			}
			for _, p := range z.procs {
				for name, link := range p.far {
					if n := link.Counts(); len(n) > 0 {
						t.Errorf("from %s to %s: %v, want no message", z.name, name, n)
					}
				}
			}
		}
	})
}

// TestRegionsCutOff cuts one of three regions off from the others. Each side keeps its shares, nothing is admitted in
// excess, and the units that are lost were under way. Afterwards units move again.
func TestRegionsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := hybridlimit.PerSecond(900)
		g := newGlobe(t, limit, nil, 2, 2, 2)
		time.Sleep(8 * time.Second)
		load := []float64{1215, 67, 67}
		g.run(5*time.Second, "k", load...)
		before := g.zones[0].got.Load()
		g.cut(g.zones[0], true)
		g.run(settled, "k", load...)
		alone := g.zones[0].got.Load()
		g.run(5*time.Second, "k", load...)
		if part := float64(g.zones[0].got.Load()-alone) / 1500; part < 0.95 || part > 1.01 {
			t.Errorf("cut off, it admits %.3f of its share", part)
		}
		if first := alone - before; first < 900*95/100 {
			t.Errorf("in the first seconds it admits %d units", first)
		}
		failed := g.zones[0].stats()
		g.cut(g.zones[0], false)
		g.run(settled, "k", load...)
		units := g.units.Load()
		g.run(5*time.Second, "k", load...)
		if part := float64(g.units.Load()-units) / 4500; part < admitted {
			t.Errorf("connected again, %.3f of the limit is admitted; %v", part, g)
		}
		if failed.Failed == 0 || g.excess() > g.credit() {
			t.Errorf("%d asks failed; excess %.2f, at most %.2f", failed.Failed, g.excess(), g.credit())
		}
	})
}

// TestRegionsWithLostReplies loses each third reply between regions: units are lost, and none is admitted twice.
func TestRegionsWithLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.PerSecond(900), nil, 2, 2)
		time.Sleep(8 * time.Second)
		g.empty("k")
		for _, z := range g.zones {
			for _, p := range z.procs {
				for _, link := range p.far {
					link.Script(lostReplies(3))
				}
			}
		}
		g.run(10*time.Second, "k", 1350, 100)
		s := g.zones[0].stats()
		if s.Failed < 5 || s.Moved < 500 || g.excess() > g.credit() {
			t.Errorf("%+v; excess %.2f, at most %.2f", s, g.excess(), g.credit())
		}
	})
}

// TestRegionsWipe wipes the Redis of a region that gives units, and then of one that gets them. Each time at most one
// transfer is admitted on top of what the lost state had.
func TestRegionsWipe(t *testing.T) {
	for wiped, name := range []string{"that gets units", "that gives units"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := hybridlimit.PerSecond(900)
				g := newGlobe(t, limit, nil, 2, 2)
				time.Sleep(8 * time.Second)
				g.empty("k")
				g.run(5*time.Second, "k", 1350, 100)
				g.zones[wiped].redis.Mini.FlushAll()
				g.run(5*time.Second, "k", 1350, 100)
				// A wiped bucket is full until the views of its processes have come.
				whole, transfer := float64(g.zones[wiped].burst()), float64(limit.Rate)/8
				if got, most := g.excess(), g.credit()+whole+transfer; got > most {
					t.Errorf("excess %.2f, at most %.2f", got, most)
				}
				units := g.units.Load()
				g.run(5*time.Second, "k", 1350, 100)
				if part := float64(g.units.Load()-units) / 4500; part < admitted {
					t.Errorf("later, %.3f of the limit is admitted; %v", part, g)
				}
			})
		})
	}
}

// TestRegionsClocks has Redis servers whose clocks differ by hours.
func TestRegionsClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.PerSecond(900), nil, 2, 2)
		time.Sleep(8 * time.Second)
		g.zones[0].redis.Mini.SetTime(time.Now().Add(-7 * time.Hour))
		stop := make(chan struct{})
		go func() { // SetTime stops the clock of a miniredis
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					g.zones[0].redis.Mini.SetTime(time.Now().Add(-7 * time.Hour))
				}
			}
		}()
		g.run(settled, "k", 1350, 100)
		units := g.units.Load()
		g.run(5*time.Second, "k", 1350, 100)
		close(stop)
		if part := float64(g.units.Load()-units) / 4500; part < admitted {
			t.Errorf("%.3f of the limit is admitted; %v", part, g)
		}
	})
}

// TestRegionsEscrow has less and more escrow than the default: the first region needs longer, and both promise the same.
func TestRegionsEscrow(t *testing.T) {
	for _, escrow := range []float64{0.1, 0.5} {
		synctest.Test(t, func(t *testing.T) {
			g := newGlobe(t, hybridlimit.PerSecond(900), func(c *region.Config) {
				c.Escrow = escrow
				c.Shares = map[string]float64{"a": 0.2, "b": 0.7}
			}, 2, 2)
			time.Sleep(8 * time.Second)
			g.empty("k")
			g.run(5*time.Second, "k", 1350, 100)
			if g.excess() > g.credit() || g.zones[0].stats().Moved < 900 {
				t.Errorf("escrow %g: excess %.2f, at most %.2f; %v", escrow, g.excess(), g.credit(), g)
			}
		})
	}
}
