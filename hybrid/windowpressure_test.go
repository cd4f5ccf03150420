package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// This file tests that leased units of a window reach the process that needs them: those of idle holders, and those that were leased
// for another distribution of the load.

// wantedWithin is the time after a refusal within which all units of idle holders are there.
const wantedWithin = 2 * time.Second

// admitsFor makes calls a millisecond apart for a time, and returns the number of the admitted ones.
func admitsFor(t *testing.T, l *hybrid.Limiter, d time.Duration) (admitted int64) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		if ask(t, l, "k", 1).Allowed {
			admitted++
			continue
		}
		time.Sleep(time.Millisecond)
	}
	return admitted
}

// TestIdleHoldersOfAWindow uses a part of a window in some processes. Another one then gets all that is left within two seconds of its
// first refusal, however long the holders have been idle.
//
// Regression: holders kept their units for half of the window. Of 80 units, 58 were left for the others.
func TestIdleHoldersOfAWindow(t *testing.T) {
	t.Parallel()
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.FixedWindow(100, time.Hour), hybridlimit.SlidingWindow(100, time.Hour), hybridlimit.FixedWindow(500, 10*time.Second),
		hybridlimit.SlidingWindow(1000, time.Minute),
	} {
		for _, holders := range []int{1, 2, 9} {
			for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
				for _, each := range []time.Duration{0, time.Millisecond, 40 * time.Millisecond} {
					for _, rest := range []time.Duration{0, time.Second, 3 * time.Second} {
						t.Run(fmt.Sprintf("%v %v holders %d each %v rest %v", limit, mode, holders, each, rest), func(t *testing.T) {
							t.Parallel()
							synctest.Test(t, func(t *testing.T) {
								ls := fleetOf(t, holders+1, limit, hybrid.Config{Mode: mode})
								if limit.Period == 10*time.Second { // else the window is young
									time.Sleep(time.Until(time.Now().Truncate(limit.Period).Add(limit.Period)))
								}
								used := admitsInTurn(t, ls[:holders], limit.Rate/5, each)
								time.Sleep(rest)
								admitted := admitsFor(t, ls[holders], wantedWithin)
								if left := limit.Rate - used; admitted < left {
									t.Errorf("admitted %d of %d units", admitted, left)
								}
								shutdown(t, ls...)
							})
						})
					}
				}
			}
		}
	}
}

// movingLoad is a load of a part of the limit that moves from the first processes of a fleet to all inside a window. With join, the
// others start then.
type movingLoad struct {
	limit    hybridlimit.Limit
	from, to int
	part     float64
	when     float64 // periods after the begin of the third window
	join     bool
	mode     hybrid.Mode
	seed     uint64 // of the times of the calls, and of the processes that they go to
}

func (m movingLoad) String() string {
	return fmt.Sprintf("%v %v from %d to %d at %g join %v seed %d", m.limit, m.mode, m.from, m.to, m.when, m.join, m.seed)
}

// play makes calls at random times in four windows, and returns their number and that of the denied ones.
func (m movingLoad) play(t *testing.T, start func() *hybrid.Limiter) (calls, denied int) {
	var fleet []*hybrid.Limiter
	add := func(n int) {
		for range n {
			fleet = append(fleet, start())
		}
	}
	if add(m.from); !m.join && m.to > m.from {
		add(m.to - m.from)
	}
	time.Sleep(3 * time.Second)
	rng := rand.New(rand.NewPCG(m.seed, uint64(m.from*100+m.to)))
	period := m.limit.Period
	began := time.Now().Truncate(period).Add(period)
	move := began.Add(2*period + time.Duration(m.when*float64(period)))
	gap := float64(period) / float64(m.limit.Rate) / m.part
	var mu sync.Mutex
	var wg sync.WaitGroup
	for at := began; at.Before(began.Add(4 * period)); at = at.Add(time.Duration(rng.ExpFloat64() * gap)) {
		time.Sleep(time.Until(at))
		users := m.from
		if !at.Before(move) {
			if m.join && len(fleet) < m.to {
				add(m.to - len(fleet))
			}
			users = m.to
		}
		l := fleet[rng.IntN(users)]
		calls++
		wg.Go(func() {
			if !ask(t, l, "k", 1).Allowed {
				mu.Lock()
				denied++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	shutdown(t, fleet...)
	return calls, denied
}

// inBubble plays the load in virtual time.
func (m movingLoad) inBubble(t *testing.T) (calls, denied int) {
	b := redistest.NewBubble(t)
	return m.play(t, func() *hybrid.Limiter {
		link := b.Link()
		link.Latency(250*time.Microsecond, 250*time.Microsecond)
		return newLimiter(t, link.Client(nil), m.limit, hybrid.Config{Mode: m.mode, Hub: hybrid.HubConfig{FleetSize: m.from}})
	})
}

// loadsThatMove are loads at three quarters of the limit.
func loadsThatMove() (loads []movingLoad) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.FixedWindow(300, time.Second), hybridlimit.FixedWindow(400, 2*time.Second), hybridlimit.FixedWindow(900, 6*time.Second),
		hybridlimit.FixedWindow(600, 15*time.Second), hybridlimit.SlidingWindow(600, 3*time.Second),
	} {
		for _, fleet := range [][2]int{{3, 12}, {4, 16}, {12, 3}} {
			for _, join := range []bool{false, true} {
				for _, when := range []float64{-0.1, 0, 0.5} {
					if !join || fleet[1] > fleet[0] {
						loads = append(loads, movingLoad{limit, fleet[0], fleet[1], 0.75, when, join, hybrid.ModeStrict, 1})
					}
				}
			}
		}
	}
	for _, when := range []float64{0, 0.2, 0.5} { // the searches found these: a process without a lease at the begin of a window
		for seed := range uint64(3) {
			loads = append(loads, movingLoad{hybridlimit.FixedWindow(1000, time.Second), 3, 12, 0.75, when, true, hybrid.ModeStrict, 100 + seed})
		}
	}
	return loads
}

// TestLoadThatMovesInAWindow denies nothing.
//
// Regression: processes kept what they had leased for an old distribution of the load until the window ended. Of 968 calls below the
// limit, 381 were denied.
func TestLoadThatMovesInAWindow(t *testing.T) {
	t.Parallel()
	for _, m := range loadsThatMove() {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if calls, denied := m.inBubble(t); denied > 0 {
					t.Errorf("%d of %d calls are denied", denied, calls)
				}
			})
		})
	}
}

// TestWantedUnitsOfEachKindOfKey is TestIdleHoldersOfAWindow with hashed keys, with a limit of the key's own, and with a class that
// holds units.
func TestWantedUnitsOfEachKindOfKey(t *testing.T) {
	t.Parallel()
	hour := hybridlimit.FixedWindow(100, time.Hour)
	for name, cfg := range map[string]hybrid.Config{
		"hashed":     {Hub: hybrid.HubConfig{HashKeys: "a secret of at least thirty-two bytes"}},
		"of its own": {LimitFor: func(string) hybridlimit.Limit { return hybridlimit.FixedWindow(100, 2*time.Hour) }},
		"classes":    {Classes: []hybrid.Class{{Name: "rest", Floor: 0.1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ls := fleetOf(t, 3, hour, cfg)
				holders := ls[:2:2]
				if len(cfg.Classes) > 0 {
					for i, l := range holders {
						var err error
						if holders[i], err = l.Class("rest"); err != nil {
							t.Fatal(err)
						}
					}
				}
				used := admitsInTurn(t, holders, 20, time.Millisecond)
				if admitted := admitsFor(t, ls[2], wantedWithin); admitted < 100-used {
					t.Errorf("admitted %d of %d units", admitted, 100-used)
				}
			})
		})
	}
}
