package notice_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/notice"
)

func newHybrid(tb testing.TB, l *redistest.MemLink, limit hybridlimit.Limit, cfg hybrid.Config) *hybrid.Limiter {
	tb.Helper()
	if cfg.Name == "" {
		cfg.Name = "api"
	}
	cfg.Hub.Logger = quiet
	made, err := hybrid.New(l.Client(nil), limit, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { made.Close() })
	return made
}

// member is a process of a fleet.
type member struct {
	watched *notice.Limiter
	told
}

// TestAtLeastOnce runs four processes in windows of a minute, while Redis's replies to one message of eight are lost. In
// 1000 windows of keys, each threshold that the units of all processes have crossed is told by one process at least,
// and by none twice. The ids of all processes are equal.
func TestAtLeastOnce(t *testing.T) {
	seed := testenv.Seed(t)
	for _, tc := range []struct {
		limit   hybridlimit.Limit
		keys    int
		minutes int
	}{
		{hybridlimit.FixedWindow(100, time.Minute), 200, testenv.Runs(5, 100)},
		{hybridlimit.SlidingWindow(100, time.Minute), 50, testenv.Runs(4, 100)},
	} {
		t.Run(tc.limit.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 2))
				f := losingFleet(t, seed, tc.limit)
				for range tc.minutes {
					f.minute(t, rng, tc.keys)
				}
				time.Sleep(20 * time.Second)
				times, all := f.toldOnce(t)
				must, early := 0, 0
				for of, units := range f.used {
					for _, at := range thresholds {
						of.at = at
						switch crosses := float64(units) >= at*float64(tc.limit.Rate); {
						case crosses:
							if must++; times[of] == 0 {
								t.Errorf("not told: %+v with %d units", of, units)
							}
						case times[of] > 0:
							early++
						}
					}
				}
				t.Logf("%d windows, %d replies lost, %d crossings, told %d times; %d more by leases that were not spent, or by the window before",
					len(f.used), f.lost.Load(), must, all, early)
				if must < len(f.used)/4 || f.lost.Load() < int64(len(f.used)/2) {
					t.Error("too few crossings or lost replies")
				}
			})
		})
	}
}

var thresholds = []float64{0.5, 0.8, 1}

// fleet is processes with one limit.
type fleet struct {
	members []*member
	used    map[crossed]int64 // units of a key in a window; at is 0
	lost    atomic.Int64      // replies
}

// losingFleet returns four processes. Of one message of eight, the reply is lost.
func losingFleet(t *testing.T, seed uint64, limit hybridlimit.Limit) *fleet {
	b, f := redistest.NewBubble(t), &fleet{used: map[crossed]int64{}}
	for p := range 4 {
		link := b.Link()
		link.Latency(time.Duration(1+p)*time.Millisecond, time.Millisecond)
		lost := rand.New(rand.NewPCG(seed, uint64(p)))
		link.Script(func(_ int, cmd []string) redistest.Verdict {
			if !strings.EqualFold(cmd[0], "EVALSHA") || lost.IntN(8) > 0 {
				return redistest.Forward()
			}
			if f.lost.Add(1)%2 == 0 {
				return redistest.DropReply(redistest.ThenHang)
			}
			return redistest.DropReply(redistest.ThenClose)
		})
		m := &member{}
		m.watched = watch(t, newHybrid(t, link, limit, hybrid.Config{}), notice.Config{At: thresholds, On: m.on})
		f.members = append(f.members, m)
	}
	time.Sleep(5 * time.Second)
	return f
}

// minute uses keys in the first 15 seconds of the next minute.
func (f *fleet) minute(t *testing.T, rng *rand.Rand, keys int) {
	border(time.Minute)
	begin := time.Now().UTC()
	left := make([]int64, keys)
	for k := range left {
		left[k] = rng.Int64N(130)
	}
	for range 15 {
		for k, n := range left {
			cost := rng.Int64N(25)
			if cost > n || cost == 0 {
				continue
			}
			left[k] -= cost
			key := fmt.Sprint("customer-", k)
			res := ask(t, f.members[rng.IntN(len(f.members))].watched, key, cost)
			if res.Source != hybridlimit.SourceFallback {
				f.used[crossed{key: key, begin: begin}] += res.Granted
			}
		}
		time.Sleep(time.Second)
	}
}

// toldOnce returns how often each crossing was told. No process may tell one twice, and its id must be its own.
func (f *fleet) toldOnce(t *testing.T) (times map[crossed]int, all int) {
	ids := map[string]crossed{}
	times = map[crossed]int{}
	for p, m := range f.members {
		own := map[crossed]bool{}
		for _, c := range m.take() {
			of := crossed{c.Key, c.Begin, c.At}
			if own[of] {
				t.Errorf("process %d tells twice: %+v", p, c)
			}
			if have, ok := ids[c.ID]; ok && have != of {
				t.Errorf("the id of %+v is that of %+v too", c, have)
			}
			own[of], ids[c.ID] = true, of
			times[of]++
			all++
		}
	}
	if len(ids) != len(times) {
		t.Errorf("%d ids of %d crossings", len(ids), len(times))
	}
	return times, all
}
