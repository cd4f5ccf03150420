package rivals_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// fleet opens a limiter in each of several processes of one Redis, and waits until they
// are warm for the key "k".
func fleet(t *testing.T, r rivals.InFlightRival, procs int, limit int64) []rivals.InFlight {
	t.Helper()
	srv := redistest.New(t)
	all := make([]rivals.InFlight, procs)
	for i := range all {
		l, err := r.Open(rivals.Env{Limit: hybridlimit.Concurrent(limit), Redis: srv.Client(t), Addr: srv.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		all[i] = l
	}
	for _, l := range all {
		if w, ok := l.(rivals.InFlightWarmer); ok {
			if err := w.Warm(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// load has the calls that play makes.
type load struct {
	limit   int64
	callers int
	lasts   time.Duration // a call
	span    time.Duration
}

// play lets callers make calls in turns with all processes. It returns the admitted
// calls, and the largest number of them at one time.
func play(t *testing.T, all []rivals.InFlight, of load) (calls, most int64) {
	t.Helper()
	var callers sync.WaitGroup
	var admitted, running, peak atomic.Int64
	until := time.Now().Add(of.span)
	for i := range of.callers {
		callers.Go(func() {
			for time.Now().Before(until) {
				end, ok, err := all[i%len(all)].Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				if !ok {
					time.Sleep(of.lasts)
					continue
				}
				raise(&peak, running.Add(1))
				admitted.Add(1)
				time.Sleep(of.lasts)
				running.Add(-1)
				end()
			}
		})
	}
	callers.Wait()
	return admitted.Load(), peak.Load()
}

// raise makes most at least n.
func raise(most *atomic.Int64, n int64) {
	for {
		if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
			return
		}
	}
}

// TestEveryInFlightRivalLimits checks that no more calls run at once than the limit, from
// three processes, that each end frees a place, and that keys are independent.
func TestEveryInFlightRivalLimits(t *testing.T) {
	for _, r := range rivals.AllInFlight {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			const limit = 4
			all := fleet(t, r, 3, limit)
			calls, most := play(t, all, load{limit: limit, callers: 12, lasts: time.Millisecond, span: time.Second})
			if most > limit || calls < limit {
				t.Errorf("%d calls, up to %d of %d at once", calls, most, limit)
			}
			var ends []func()
			redistest.Eventually(t, 30*time.Second, "one process has all places", func() bool {
				end, ok, err := all[0].Acquire(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					ends = append(ends, end)
				}
				return len(ends) == limit
			})
			for i, l := range all {
				if _, ok, err := l.Acquire(t.Context(), "k"); ok || err != nil {
					t.Errorf("process %d admits a call above the limit: %v, %v", i, ok, err)
				}
			}
			for range 2 {
				ends[0]() // only the first has an effect
			}
			var freed []func()
			redistest.Eventually(t, 30*time.Second, "the place of a call that has ended is free", func() bool {
				end, ok, err := all[1].Acquire(t.Context(), "k")
				if ok {
					freed = append(freed, end)
				}
				return err == nil && ok
			})
			if _, ok, err := all[2].Acquire(t.Context(), "k"); ok || err != nil {
				t.Errorf("a release that is repeated frees a second place: %v, %v", ok, err)
			}
			for _, end := range append(ends[1:], freed...) {
				end()
			}
		})
	}
}

// TestMessagesBesideTheSortedSet plays the same calls in a fleet of four processes with
// each limiter of calls in flight. All messages count, the heartbeats too.
func TestMessagesBesideTheSortedSet(t *testing.T) {
	for _, test := range []struct {
		load
		fewer float64 // times
	}{
		{load{200, 40, 2 * time.Millisecond, 3 * time.Second}, 20}, // ten permits a process or more, at a low load
		{load{8, 12, 20 * time.Millisecond, 3 * time.Second}, 1},   // two permits a process, and more callers than permits
	} {
		t.Run(fmt.Sprintf("%d permits, %d callers", test.limit, test.callers), func(t *testing.T) {
			cost := map[string]float64{}
			for _, r := range rivals.AllInFlight {
				all := fleet(t, r, 4, test.limit)
				sent := func() (n int64) {
					for _, l := range all {
						n += l.Messages()
					}
					return n
				}
				before := sent()
				calls, _ := play(t, all, test.load)
				cost[r.Name] = float64(sent()-before) / float64(calls)
				t.Logf("%s: %.3f messages for each of %d calls", r.Name, cost[r.Name], calls)
			}
			if ours, theirs := cost["hybrid"], cost["sorted-set"]; ours*test.fewer > 1.02*theirs {
				t.Errorf("%.3f messages a call, the sorted set has %.3f, and %v times fewer were promised", ours, theirs, test.fewer)
			}
		})
	}
}

func TestInFlightRivalsRefuseARate(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rivals.AllInFlight {
		if seen[r.Name] || strings.ContainsAny(r.Name, " /=") || r.What == "" {
			t.Errorf("%q: %q", r.Name, r.What)
		}
		seen[r.Name] = true
		for _, bad := range []hybridlimit.Limit{hybridlimit.PerSecond(5), hybridlimit.Concurrent(0)} {
			if _, err := r.Open(rivals.Env{Limit: bad}); err == nil {
				t.Errorf("%s: a limit of %v is no error", r.Name, bad)
			}
		}
	}
}
