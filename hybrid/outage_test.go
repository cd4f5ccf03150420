package hybrid_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// outageLimits are limits of every algorithm with a rate of so many units a second and a burst.
func outageLimits(rate, burst int64) map[string]hybridlimit.Limit {
	return map[string]hybridlimit.Limit{
		"bucket": hybridlimit.TokenBucket(rate, time.Second, burst), "leaky-bucket": hybridlimit.LeakyBucket(rate, time.Second, burst),
		"queue": hybridlimit.LeakyQueue(rate, time.Second, burst),
	}
}

// TestAFleetWithoutRedis checks the promise of FallbackShare for limits and fleets of every size: without Redis a fleet admits
// at most rate·t + max(burst, N), and at least as much as the shares of its processes. Cause: a share below one unit was raised
// to one unit per time-to-full, so that 20 processes admitted 20 times a limit with a burst of 1.
func TestAFleetWithoutRedis(t *testing.T) {
	t.Parallel()
	const seconds = 30
	type row struct{ rate, burst, procs int64 }
	for _, r := range []row{
		{10, 1, 20}, {10, 10, 20}, {10, 100, 20}, {1, 1, 3}, {1, 10, 100}, {100, 1, 7}, {1000, 10_000, 20}, {10_000, 1, 4}, {5, 5, 1},
	} {
		for name, limit := range outageLimits(r.rate, r.burst) {
			if name != "bucket" && r.procs > 3 && r != (row{10, 10, 20}) {
				continue // they differ from a bucket in the time of a call only
			}
			t.Run(fmt.Sprint(r, " ", name), func(t *testing.T) {
				most := r.rate*seconds + max(r.burst, r.procs)
				least := min(r.rate*seconds, 10*seconds*max(r.procs, r.burst)) - r.procs // in ten calls a second
				if got := unitsOf(cutOff(t, limit, int(r.procs), seconds)); got > most || got < least {
					t.Errorf("%d units in %d s without Redis, want %d to %d", got, seconds, least, most)
				}
			})
		}
	}
}

// TestWindowsWithoutRedis checks that a fleet without Redis admits at most the limit in each window. If the limit is smaller than the
// fleet, it admits at most its part of the rate, and one unit in each process. Cause: the fallback was a bucket that refilled inside
// the window: 177 of 90 in the first one.
func TestWindowsWithoutRedis(t *testing.T) {
	t.Parallel()
	const seconds = 60
	for _, r := range []struct{ limit, procs int64 }{{90, 3}, {100, 3}, {5, 40}, {10, 10}, {1000, 20}} {
		for name, limit := range map[string]hybridlimit.Limit{
			"fixed": hybridlimit.FixedWindow(r.limit, 10*time.Second), "sliding": hybridlimit.SlidingWindow(r.limit, 10*time.Second),
			"log": hybridlimit.SlidingLog(r.limit, 10*time.Second),
		} {
			t.Run(fmt.Sprint(r, " ", name), func(t *testing.T) {
				each := cutOff(t, limit, int(r.procs), seconds)
				got, most := unitsOf(each), r.limit*seconds/10+max(r.limit, r.procs)
				if got > most || got < r.limit*seconds/10/3 {
					t.Errorf("%d units in %d s without Redis, want at most %d", got, seconds, most)
				}
				for i := 0; i < len(each) && r.limit >= r.procs; i += 10 {
					if got := unitsOf(each[i:min(i+10, len(each))]); got > r.limit {
						t.Errorf("%d units in window %d", got, i/10)
					}
				}
			})
		}
	}
}

// cutOff returns the units that a fleet without Redis admits in each of some seconds, if each process asks all the time. The first
// second begins windows.
func cutOff(t *testing.T, limit hybridlimit.Limit, procs, seconds int) (each []int64) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		b.Kill()
		var fleet []*hybrid.Limiter
		for range procs {
			fleet = append(fleet, newLimiter(t, b.Client(nil), limit, hybrid.Config{MaxWait: -1, Hub: hybrid.HubConfig{FleetSize: procs}}))
		}
		start := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(time.Until(start))
		each = make([]int64, seconds+1)
		for i := range seconds*10 + 1 {
			for _, l := range fleet {
				for ask(t, l, "k", 1).Allowed {
					each[int(time.Since(start)/time.Second)]++
				}
			}
			if i < seconds*10 {
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
	return each
}

func unitsOf(each []int64) (units int64) {
	for _, n := range each {
		units += n
	}
	return units
}

// TestOutageOfAUsedLimit checks that an outage gives nothing back of a limit that was used up, in each mode and algorithm. Cause:
// a direct call left no view from which the fallback could begin, so an outage gave each key of ModeExact, and each log, a new
// share.
func TestOutageOfAUsedLimit(t *testing.T) {
	t.Parallel()
	for name, limit := range together {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			t.Run(fmt.Sprint(name, ", ", mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					link := b.Link()
					l := newLimiter(t, link.Client(nil), limit, hybrid.Config{Mode: mode, MaxWait: 100 * time.Millisecond})
					time.Sleep(2100 * time.Millisecond)
					units := map[string]int64{}
					use := func(key string, calls int) {
						for range calls {
							units[key] += ask(t, l, key, 1).Granted
						}
					}
					use("used up", 150)
					use("half", 50)
					use("nearly", 99)
					time.Sleep(time.Second)
					half, err := l.Inspect(t.Context(), "half")
					if err != nil {
						t.Fatal(err)
					}
					link.Refuse(true)
					link.CutAll()
					time.Sleep(3 * time.Second)
					for _, key := range []string{"used up", "half", "nearly"} {
						before := units[key]
						use(key, 150)
						if more := units[key] - before; before+more > 105 {
							t.Errorf("%s: %d of 100 units, and %d more without Redis", key, before, more)
						}
					}
					if units["half"] < 100-half.Leased { // the lease has ended in the outage
						t.Errorf("half: %d of 100 units, with those of the outage; %d were leased", units["half"], half.Leased)
					}
					link.Refuse(false)
					time.Sleep(3 * time.Second)
				})
			})
		}
	}
}

// TestFlappingRedis checks that short outages one after the other give no new burst each.
func TestFlappingRedis(t *testing.T) {
	t.Parallel()
	for name, limit := range outageLimits(10, 60) {
		for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeExact} {
			t.Run(fmt.Sprint(name, ", ", mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					link := b.Link()
					l := newLimiter(t, link.Client(nil), limit, hybrid.Config{Mode: mode})
					time.Sleep(2100 * time.Millisecond)
					began := time.Now()
					var units int64
					for i := range 1500 {
						if i%100 == 50 {
							link.Refuse(true)
							link.CutAll()
						}
						if i%100 == 80 {
							link.Refuse(false)
						}
						units += ask(t, l, "k", 1).Granted
						time.Sleep(20 * time.Millisecond)
					}
					most := 60 + int64(10*time.Since(began).Seconds()) + 10
					if units > most {
						t.Errorf("%d units in %v of outages of 0.6 s, want at most %d", units, time.Since(began), most)
					}
				})
			})
		}
	}
}

// TestWipedRedis checks that a Redis that has lost everything gives nothing back of a limit that was used up, in each mode and
// algorithm. Cause: in ModeExact, no process knew what had been used.
func TestWipedRedis(t *testing.T) {
	t.Parallel()
	for name, limit := range together {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			if limit.Algorithm == hybridlimit.AlgSlidingLog {
				continue // no process knows the entries of a log: see docs/limits.md
			}
			t.Run(fmt.Sprint(name, ", ", mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					rdb := b.Client(nil)
					l := newLimiter(t, rdb, limit, hybrid.Config{Mode: mode, MaxWait: 100 * time.Millisecond})
					time.Sleep(2100 * time.Millisecond)
					for range 150 {
						ask(t, l, "k", 1)
					}
					time.Sleep(time.Second)
					if err := rdb.FlushAll(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
					var more int64
					for range 150 {
						more += ask(t, l, "k", 1).Granted
						time.Sleep(20 * time.Millisecond)
					}
					if more > 5 {
						t.Errorf("%d units more of a limit of 100 that was used up", more)
					}
				})
			})
		}
	}
}

// TestCallsWithoutRedis checks that calls run while Redis is away, whatever the size of the fleet, at most max(n, N) of them.
// Cause: a fleet with more processes than permits ran none.
func TestCallsWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		limit, floor int64
		procs        int
		each         int64 // calls in each process
	}{{5, 0, 10, 1}, {5, 2, 10, 2}, {5, -1, 10, 0}, {1, 0, 3, 1}, {20, 0, 10, 2}, {25, 0, 10, 2}} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				log := newCapture()
				var fleet []*hybrid.ConcurrencyLimiter
				for range r.procs {
					h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log)})
					l, err := h.Concurrency(hybridlimit.Concurrent(r.limit), hybrid.ConcurrencyConfig{Name: "calls", FallbackFloor: r.floor})
					if err != nil {
						t.Fatal(err)
					}
					fleet = append(fleet, l)
				}
				time.Sleep(3 * time.Second)
				b.Kill()
				time.Sleep(5 * time.Second)
				for i, l := range fleet {
					held := int64(0)
					for range r.limit + 5 {
						if p, res := acquire(t, l, "k", 1); res.Allowed {
							defer p.Release()
							held++
						}
					}
					if held != r.each {
						t.Errorf("process %d runs %d calls, want %d", i, held, r.each)
					}
				}
				time.Sleep(5 * time.Second)
				lines := 0
				for _, line := range log.all() {
					if strings.Contains(line, "more processes than the limit has permits") {
						lines++
					}
				}
				if above := r.each*int64(r.procs) > r.limit; above && lines != r.procs || !above && lines != 0 {
					t.Errorf("%d log lines in %d processes", lines, r.procs)
				}
			})
		})
	}
}

// TestShutdownAfterTheClient checks that Shutdown does not wait for a client that was closed before, and says what to do.
func TestShutdownAfterTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.NewBubble(t).Client(nil)
		l := newLimiter(t, rdb, still(100), hybrid.Config{Mode: hybrid.ModeDeferred})
		time.Sleep(2100 * time.Millisecond)
		for range 10 {
			ask(t, l, "k", 1)
		}
		rdb.Close()
		began := time.Now()
		err := l.Shutdown(t.Context())
		if took := time.Since(began); took > time.Second || !errors.Is(err, redis.ErrClosed) || !strings.Contains(err.Error(), "close the client of Redis after the hub") {
			t.Errorf("%v after %v", err, took)
		}
	})
}
