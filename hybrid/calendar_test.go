package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// azoresDay has its midnight at 01:00 UTC in winter: an hour after the clock of a bubble begins.
func azoresDay(n int64) hybridlimit.Limit {
	return hybridlimit.CalendarWindow(n, hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: "Atlantic/Azores"})
}

// midnight is the first border of azoresDay.
func midnight() time.Time { return time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC) }

// ahead makes the clock of Redis run ahead of that of the processes.
func ahead(b *redistest.Bubble, skew time.Duration) { aheadBy(b, func() time.Duration { return skew }) }

// aheadBy is ahead for a lead that changes.
func aheadBy(b *redistest.Bubble, skew func() time.Duration) {
	b.SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if cmd == "EVALSHA" || cmd == "EVAL" { // not before the commands of a script, which hold the lock
			b.Mini.SetTime(time.Now().Add(skew()))
		}
		return false
	})
}

// startDay makes processes that are a millisecond away from Redis in each direction, and waits until they know of each
// other.
func startDay(
	t *testing.T, b *redistest.Bubble, n int, limit hybridlimit.Limit, cfg hybrid.Config,
) (ls []*hybrid.Limiter, links []*redistest.MemLink) {
	for range n {
		link := b.Link()
		link.Latency(time.Millisecond, time.Millisecond)
		ls, links = append(ls, newLimiter(t, link.Client(nil), limit, cfg)), append(links, link)
	}
	time.Sleep(4 * time.Second)
	return ls, links
}

// TestFleetOverTheBorderOfADay puts twice the limit on a fleet from some seconds before the end of a day until some
// seconds after. Each day of Redis's clock admits at least the limit, and at most (N-1)·C units more. The answers name
// the border.
func TestFleetOverTheBorderOfADay(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, skew := range []time.Duration{0, 700 * time.Millisecond, -3 * time.Second, 40 * time.Minute} {
			for _, empty := range []bool{false, true} { // the first day has no unit left
				t.Run(fmt.Sprint(mode, skew, empty), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { overTheBorder(t, mode, skew, empty) })
				})
			}
		}
	}
}

func overTheBorder(t *testing.T, mode hybrid.Mode, skew time.Duration, empty bool) {
	const n, rate = 3, 300
	rng, b := testenv.Rand(t), redistest.NewBubble(t)
	border := midnight().Add(-skew)
	time.Sleep(time.Until(border.Add(-14 * time.Second)))
	ahead(b, skew)
	cfg := hybrid.Config{Mode: mode}
	if mode == hybrid.ModeAuto {
		cfg.Overshoot = 0.1
	}
	ls, _ := startDay(t, b, n, azoresDay(rate), cfg)
	credit := (n - 1) * ls[0].Stats().Credit
	admitted := map[bool]int64{} // in the first day, and in the second
	for empty && ask(t, ls[0], "k", 1).Allowed {
		admitted[true]++
	}
	for time.Until(border) > -20*time.Second {
		first := time.Now().Before(border)
		res := ask(t, ls[rng.IntN(n)], "k", 1)
		if first != time.Now().Before(border) { // it waited over the border: the answer tells the day of its unit
			if res.Allowed {
				admitted[res.ResetAfter < time.Hour]++
			}
			continue
		}
		if res.Allowed {
			admitted[first]++
		}
		end := border
		if !first {
			end = border.AddDate(0, 0, 1)
		}
		at := time.Now().Add(res.ResetAfter)
		if res.Remaining == 0 && at.Sub(end.AddDate(0, 0, 1)).Abs() <= 10*time.Millisecond { // a debt counts in the next day too
			at = end
		}
		if at.Sub(end).Abs() > 10*time.Millisecond {
			t.Fatalf("%v: the day ends at %v, want %v: %+v", time.Now(), at, end, res)
		}
		if !res.Allowed && res.RetryAfter > time.Until(end)+10*time.Millisecond {
			t.Fatalf("%v: RetryAfter is behind the border: %+v", time.Now(), res)
		}
		time.Sleep(time.Duration(rng.Int64N(40)) * time.Millisecond)
	}
	// What the first day had above the limit is missing in the second.
	least := map[bool]int64{true: rate, false: rate - max(0, admitted[true]-rate)}
	for _, first := range []bool{true, false} {
		if got := admitted[first]; got < least[first] || got > rate+credit {
			t.Errorf("first day %v: %d units, want %d to %d", first, got, least[first], rate+credit)
		}
	}
	shutdown(t, ls...)
}

// TestOpsAtTheBorder compares a day with a fixed window that ends at the same time, of 40 processes at twice the limit from
// ten seconds before the border until ten after. A border of a calendar costs at most a twentieth more ops for each admission.
func TestOpsAtTheBorder(t *testing.T) {
	t.Parallel()
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			var cost []float64
			for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(20_000, time.Hour), azoresDay(20_000)} {
				synctest.Test(t, func(t *testing.T) { cost = append(cost, opsAtTheBorder(t, mode, limit)) })
			}
			t.Logf("ops for each admission: fixed window %.5f, day %.5f", cost[0], cost[1])
			if cost[1] > 1.05*cost[0] {
				t.Errorf("a day costs %.3f times as many ops as a fixed window", cost[1]/cost[0])
			}
		})
	}
}

func opsAtTheBorder(t *testing.T, mode hybrid.Mode, limit hybridlimit.Limit) float64 {
	rng, b := testenv.Rand(t), redistest.NewBubble(t)
	ahead(b, 0)
	time.Sleep(time.Until(midnight().Add(-14 * time.Second)))
	ls, _ := startDay(t, b, 40, limit, hybrid.Config{Mode: mode})
	admitted := int64(0)
	for time.Until(midnight()) > -10*time.Second {
		if ask(t, ls[rng.IntN(len(ls))], "k", 1).Allowed {
			admitted++
		}
		time.Sleep(time.Duration(rng.Int64N(500)) * time.Microsecond)
	}
	ops := sum(ls, func(s hybrid.Stats) int64 { return s.Ops })
	shutdown(t, ls...)
	return float64(ops) / float64(admitted)
}
