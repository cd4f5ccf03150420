//go:build search

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

// TestLoadsThatMoveWidely is TestLoadThatMovesInAWindow with more fleets, times and windows. When a fleet of 30 shrinks to three inside
// a window of one or two seconds, 27 processes hold a few units each, and too few calls are missing to tell that from chance.
func TestLoadsThatMoveWidely(t *testing.T) {
	t.Parallel()
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.FixedWindow(300, time.Second), hybridlimit.FixedWindow(1000, time.Second), hybridlimit.FixedWindow(400, 2*time.Second),
		hybridlimit.FixedWindow(900, 6*time.Second), hybridlimit.FixedWindow(3000, 15*time.Second), hybridlimit.SlidingWindow(600, 3*time.Second),
	} {
		for _, fleet := range [][2]int{{3, 12}, {4, 16}, {3, 30}, {12, 3}, {30, 3}} {
			for _, when := range []float64{-0.1, 0, 0.2, 0.5, 0.7} {
				for seed := range uint64(4) {
					mode := []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict}[seed%2]
					m := movingLoad{limit, fleet[0], fleet[1], 0.75, when, fleet[1] > fleet[0] && seed < 2, mode, 100 + seed}
					t.Run(m.String(), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							calls, denied := m.inBubble(t)
							most := calls / 100
							if fleet == [2]int{30, 3} && limit.Period <= 2*time.Second {
								most = calls / 6
							}
							if denied > most {
								t.Errorf("%d of %d calls are denied", denied, calls)
							}
						})
					})
				}
			}
		}
	}
}

// TestLoadThatMovesOnARealRedis is TestLoadThatMovesInAWindow on a redis-server.
func TestLoadThatMovesOnARealRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.FixedWindow(300, time.Second), hybridlimit.FixedWindow(400, 2*time.Second),
	} {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
			for i, fleet := range [][2]int{{3, 12}, {4, 16}} {
				m := movingLoad{limit, fleet[0], fleet[1], 0.75, 0.3 * float64(i), true, mode, 7}
				t.Run(m.String(), func(t *testing.T) {
					calls, denied := m.play(t, func() *hybrid.Limiter {
						return newLimiter(t, srv.Client(t), limit, patient(hybrid.Config{
							Mode: mode, Hub: hybrid.HubConfig{FleetSize: m.from, Prefix: fmt.Sprintf("%v-%v-%d", limit.Period, mode, i)},
						}))
					})
					if denied > 0 {
						t.Errorf("%d of %d calls are denied", denied, calls)
					}
				})
			}
		}
	}
}

// TestIdleHoldersOnARealRedis is TestIdleHoldersOfAWindow on a redis-server.
func TestIdleHoldersOnARealRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(100, 24*time.Hour), hybridlimit.SlidingWindow(100, 24*time.Hour)} {
		for _, holders := range []int{1, 2, 9} {
			for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
				t.Run(fmt.Sprintf("%v %v holders %d", limit, mode, holders), func(t *testing.T) {
					t.Parallel()
					ls := make([]*hybrid.Limiter, holders+1)
					for i := range ls {
						ls[i] = newLimiter(t, srv.Client(t), limit, patient(hybrid.Config{
							Mode: mode, Hub: hybrid.HubConfig{Prefix: fmt.Sprintf("idle-%d-%v-%d", limit.Algorithm, mode, holders)},
						}))
					}
					ready(t, ls...)
					used := admitsInTurn(t, ls[:holders], 20, time.Millisecond)
					time.Sleep(time.Second)
					// A busy machine is late: see TestIdleHoldersOfAWindow for the bound of two seconds.
					if admitted := admitsFor(t, ls[holders], 3*wantedWithin); admitted < limit.Rate-used {
						t.Errorf("admitted %d of %d units", admitted, limit.Rate-used)
					}
				})
			}
		}
	}
}
