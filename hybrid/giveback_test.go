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
)

// This file tests that leased units that are not spent come back.

// fleetOf returns limiters of several processes on one Redis, after their first
// heartbeats.
func fleetOf(t *testing.T, processes int, limit hybridlimit.Limit, cfg hybrid.Config) []*hybrid.Limiter {
	t.Helper()
	b := redistest.NewBubble(t)
	ls := make([]*hybrid.Limiter, processes)
	for i := range ls {
		ls[i] = newLimiter(t, b.Client(nil), limit, cfg)
	}
	time.Sleep(5 * time.Second)
	return ls
}

// callsInTime makes calls a millisecond apart, which lease units: a group at once does not.
func callsInTime(t *testing.T, l *hybrid.Limiter, calls int) {
	t.Helper()
	for range calls {
		ask(t, l, "k", 1)
		time.Sleep(time.Millisecond)
	}
}

// TestSlowGroups uses up a slow limit in groups of calls, each on one process.
// The fleet admits the whole quota.
//
// Regression: of 100 units an hour, groups of five admitted 55. The lease of
// each group expired unspent.
func TestSlowGroups(t *testing.T) {
	t.Parallel()
	day := int64(testenv.Runs(2000, 10_000))
	for _, tc := range []struct {
		limit     hybridlimit.Limit
		processes int
		least     int64
	}{
		{hybridlimit.PerHour(100), 1, 100},
		{hybridlimit.PerHour(300), 3, 297},
		{hybridlimit.PerDay(day), 10, day * 99 / 100},
	} {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred} {
			for _, group := range []int64{5, 20} {
				if tc.processes > 3 {
					group *= 4
				}
				t.Run(fmt.Sprintf("%v over %d %v by %d", tc.limit, tc.processes, mode, group), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						ls := fleetOf(t, tc.processes, tc.limit, hybrid.Config{Mode: mode})
						rng := rand.New(rand.NewPCG(1, uint64(group)))
						burst, began, admitted := tc.limit.BurstSize(), time.Now(), int64(0)
						for asked := int64(0); asked < burst+3*group; asked += group {
							l := ls[rng.IntN(len(ls))]
							for range group {
								if ask(t, l, "k", 1).Allowed {
									admitted++
								}
							}
							time.Sleep(2 * time.Second)
						}
						refilled := int64(time.Since(began)) * tc.limit.Rate / int64(tc.limit.Period)
						switch mode { // its overshoot
						case hybrid.ModeAuto:
							refilled += burst / 20
						case hybrid.ModeDeferred:
							refilled += burst
						}
						if admitted < tc.least || admitted > burst+refilled {
							t.Errorf("%d units admitted, want %d to %d", admitted, tc.least, burst+refilled)
						}
						var sum hybrid.Stats
						shutdown(t, ls...)
						for _, l := range ls {
							s := l.Stats()
							sum.Admitted, sum.Expired, sum.Lost = sum.Admitted+s.Admitted, sum.Expired+s.Expired, sum.Lost+s.Lost
							sum.Paid, sum.Granted, sum.Refunded = sum.Paid+s.Paid, sum.Granted+s.Granted, sum.Refunded+s.Refunded
						}
						if sum.Expired > 0 || sum.Lost > 0 || sum.Paid+sum.Granted-sum.Refunded != sum.Admitted {
							t.Errorf("%d units expired, %d are lost, Redis debited %d for %d admitted", sum.Expired, sum.Lost, sum.Paid+sum.Granted-sum.Refunded, sum.Admitted)
						}
					})
				})
			}
		}
	}
}

// TestUnspentLeasesComeBack stops calling while a lease is in hand. Redis has
// the units again within a second and T, and another process can use them.
func TestUnspentLeasesComeBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ls := fleetOf(t, 2, hybridlimit.PerHour(1000), hybrid.Config{Mode: mode})
				callsInTime(t, ls[0], 400)
				if ls[0].Stats().Held == 0 {
					t.Fatal("the test needs a lease in hand")
				}
				time.Sleep(time.Second + 50*time.Millisecond)
				s := ls[0].Stats()
				if s.Held != 0 || s.Expired+s.Lost > 0 || s.Refunded == 0 {
					t.Errorf("after a second: %d held, %d expired, %d lost, %d back", s.Held, s.Expired, s.Lost, s.Refunded)
				}
				admitted := int64(0)
				for range 700 {
					if ask(t, ls[1], "k", 1).Allowed {
						admitted++
					}
				}
				if admitted < 599 {
					t.Errorf("the other process got %d of 600 units", admitted)
				}
				shutdown(t, ls...)
			})
		})
	}
}

// TestUnneededUnitsOfLongLeasesComeBack uses half of a burst of ten seconds within half a second. Then the processes are
// idle, or go on with a hundredth of the demand. Their leases would live for four seconds. Idle processes hold nothing
// after 1.3 s. The others hold little more in the first seconds than with leases of a second.
func TestUnneededUnitsOfLongLeasesComeBack(t *testing.T) {
	t.Parallel()
	const rate, burst, processes, used = 1000, 10_000, 10, 5000
	// held returns the mean of the units held from a second to three seconds after the burst, or after 1.3 s without calls.
	held := func(t *testing.T, cfg hybrid.Config, calls bool) (units int64) {
		synctest.Test(t, func(t *testing.T) {
			ls := fleetOf(t, processes, hybridlimit.TokenBucket(rate, time.Second, burst), cfg)
			if admitted := admitsInTurn(t, ls, used, 500*time.Millisecond/used); admitted != used {
				t.Errorf("%d of %d admitted", admitted, used)
			}
			if !calls {
				time.Sleep(1300 * time.Millisecond)
				units = heldBy(ls)
			}
			for i := 0; calls && i < 30; i++ {
				time.Sleep(100 * time.Millisecond)
				for _, l := range ls {
					ask(t, l, "k", 1)
				}
				if i >= 10 {
					units += heldBy(ls) / 20
				}
			}
			shutdown(t, ls...)
		})
		return units
	}
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			if idle := held(t, hybrid.Config{Mode: mode}, false); idle > 0 {
				t.Errorf("idle processes hold %d units", idle)
			}
			long, short := held(t, hybrid.Config{Mode: mode}, true), held(t, hybrid.Config{Mode: mode, MaxLease: time.Second}, true)
			if t.Logf("%d units are held, with leases of a second %d", long, short); 2*long > 3*short {
				t.Errorf("%d units are held, with leases of a second %d", long, short)
			}
		})
	}
}

// TestIdleProcessesReturnLongLeases stops the calls of a fleet below its limit, each time after another schedule of calls
// at random times. Its leases live for four seconds. They are back in 1.3 s, however small the demand was.
func TestIdleProcessesReturnLongLeases(t *testing.T) {
	t.Parallel()
	const processes = 4
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
		for _, each := range []int64{3, 6, 12, 30, 100} { // units a second and process
			for _, load := range []float64{0.5, 0.9} {
				t.Run(fmt.Sprintf("%v, %d a second, load %g", mode, each, load), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						rate, rng := processes*each, testenv.Rand(t)
						ls := fleetOf(t, processes, hybridlimit.TokenBucket(rate, time.Second, 10*rate), hybrid.Config{Mode: mode})
						for range testenv.Runs(3, 100) {
							for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
								time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / float64(rate) / load))
								ask(t, ls[rng.IntN(processes)], "k", 1)
							}
							time.Sleep(1300 * time.Millisecond)
							if held := heldBy(ls); held > 0 {
								t.Errorf("%d units are held after 1.3 s", held)
							}
						}
						shutdown(t, ls...)
					})
				})
			}
		}
	}
}

// heldBy returns the leased units that limiters hold.
func heldBy(ls []*hybrid.Limiter) (units int64) {
	for _, l := range ls {
		units += l.Stats().Held
	}
	return units
}

// TestACrashLosesOnlyItsLeases ends a process without Shutdown while a lease is
// in hand. The rest of the bucket is there for another process.
func TestACrashLosesOnlyItsLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ls := fleetOf(t, 2, hybridlimit.PerHour(1000), hybrid.Config{Mode: hybrid.ModeStrict})
		callsInTime(t, ls[0], 400)
		held := ls[0].Stats().Held
		if err := ls[0].Close(); err != nil || held == 0 {
			t.Fatalf("%v, %d units in hand", err, held)
		}
		time.Sleep(5 * time.Second) // the ledger forgets the lease, and the others the process
		admitted := int64(0)
		for range 700 {
			if ask(t, ls[1], "k", 1).Allowed {
				admitted++
			}
		}
		if admitted < 600-held {
			t.Errorf("%d units admitted after a crash with %d in hand, want at least %d", admitted, held, 600-held)
		}
		shutdown(t, ls[1])
	})
}

// TestShutdownReturnsLeases ends a process in order while a lease is in hand.
// Redis then holds exactly the units that were not used.
func TestShutdownReturnsLeases(t *testing.T) {
	t.Parallel()
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.PerHour(1000), hybridlimit.TokenBucket(1000, time.Second, 1000), hybridlimit.LeakyBucket(1, time.Hour, 500),
		hybridlimit.FixedWindow(1000, time.Hour), hybridlimit.SlidingWindow(1000, time.Hour),
	} {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%v %v", limit, mode), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ls := fleetOf(t, 2, limit, hybrid.Config{Mode: mode})
					for i := range 300 {
						if !ask(t, ls[0], "k", 1).Allowed {
							t.Fatalf("call %d is denied", i)
						}
						time.Sleep(time.Millisecond)
					}
					leases := mode == hybrid.ModeAuto || mode == hybrid.ModeStrict
					used := int64(300)
					for ; leases && ls[0].Stats().Held == 0 && used < 400; used++ {
						ask(t, ls[0], "k", 1)
					}
					if held := ls[0].Stats().Held; leases != (held > 0) {
						t.Fatalf("%d units in hand", held)
					}
					shutdown(t, ls[0])
					if s := ls[0].Stats(); s.Held+s.Expired+s.Lost > 0 || s.Paid+s.Granted-s.Refunded != used {
						t.Errorf("%d held, %d expired, %d lost; Redis has debited %d, want %d", s.Held, s.Expired, s.Lost, s.Paid+s.Granted-s.Refunded, used)
					}
					shutdown(t, ls[1])
				})
			})
		}
	}
}

// TestShutdownReturnsLeasesInABadWorld is TestShutdownReturnsLeases after lost
// replies and after a Redis that hung. The counters balance to the unit.
func TestShutdownReturnsLeasesInABadWorld(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(b *redistest.Bubble, link *redistest.MemLink){
		"hung": func(_ *redistest.Bubble, link *redistest.MemLink) {
			link.Pause()
			time.Sleep(700 * time.Millisecond)
			link.Resume()
		},
		"wiped": func(b *redistest.Bubble, _ *redistest.MemLink) { b.Mini.FlushAll() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				l := newLimiter(t, link.Client(nil), hybridlimit.PerHour(1000), hybrid.Config{})
				time.Sleep(5 * time.Second)
				for range 300 {
					ask(t, l, "k", 1)
				}
				trouble(b, link)
				time.Sleep(3 * time.Second)
				ask(t, l, "k", 1)
				shutdown(t, l)
				s := l.Stats()
				if got, want := s.Paid+s.Granted-s.Refunded, s.Admitted+s.Expired+s.Lost-s.Dropped-s.Forgiven; got != want || s.Held != 0 || s.Owed != 0 {
					t.Errorf("Redis has debited %d, accounted for are %d: %+v", got, want, s)
				}
			})
		})
	}
}

// TestEvictionReturnsLeases fills the memory of a limiter with other keys while
// a lease is in hand. The lease goes back before its key is forgotten.
func TestEvictionReturnsLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := fleetOf(t, 1, hybridlimit.PerHour(1000), hybrid.Config{Mode: hybrid.ModeStrict, MaxKeys: 4})[0]
		for range 300 {
			ask(t, l, "k", 1)
		}
		if l.Stats().Held == 0 {
			t.Fatal("the test needs a lease in hand")
		}
		for i := range 100 {
			ask(t, l, fmt.Sprint("other", i), 1)
			time.Sleep(time.Millisecond)
		}
		s := l.Stats()
		if s.Evicted == 0 || s.Held+s.Expired+s.Lost > 0 || s.Paid+s.Granted-s.Refunded != s.Admitted {
			t.Errorf("%d evicted, %d held, %d expired, %d lost, %d debited for %d", s.Evicted, s.Held, s.Expired, s.Lost, s.Paid+s.Granted-s.Refunded, s.Admitted)
		}
		shutdown(t, l)
	})
}

// TestAChangedLimitReturnsLeases changes the limit while a lease is in hand.
// The lease goes back at once.
func TestAChangedLimitReturnsLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := fleetOf(t, 1, hybridlimit.PerHour(1000), hybrid.Config{Mode: hybrid.ModeStrict})[0]
		for range 300 {
			ask(t, l, "k", 1)
		}
		held := l.Stats().Held
		if err := l.SetLimit(hybridlimit.PerHour(2000)); err != nil {
			t.Fatal(err)
		}
		ask(t, l, "k", 1)
		time.Sleep(10 * time.Millisecond)
		if s := l.Stats(); held < 2 || s.Expired+s.Lost > 0 || s.Refunded < held-1 {
			t.Errorf("%d of %d units are back, %d expired, %d lost", s.Refunded, held, s.Expired, s.Lost)
		}
		shutdown(t, l)
	})
}
