package hybrid

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestShutdownVisitsFewKeys counts the visits of keys while Redis pays a batch of each tag in a tick. Regression: each tick visited
// all keys that were not paid, so a process with many of them used more time for that than Redis did to pay them.
func TestShutdownVisitsFewKeys(t *testing.T) {
	const tags, keys, batch = 16, 10_000, 64
	lines, paid := make([][]int, tags), make([]int, tags) // each element is the place of a key in its line
	for tag := range lines {
		for i := range keys + 100*tag { // not all lines end at once
			lines[tag] = append(lines[tag], i<<8|tag)
		}
	}
	all, visits, ticks := 0, 0, 0
	for _, line := range lines {
		all += len(line)
	}
	for ; len(lines) > 0; ticks++ {
		for tag := range paid {
			paid[tag] += batch
		}
		lines = again(lines, func(key int) bool {
			visits++
			return key>>8 < paid[key&0xff]
		})
	}
	if most := all + ticks*(paysNow+tags); visits > most {
		t.Errorf("%d visits of %d keys in %d ticks, want at most %d", visits, all, ticks, most)
	}
	if want := (keys+100*(tags-1))/batch + 1; ticks != want {
		t.Errorf("%d ticks, want %d", ticks, want)
	}
}

// TestShutdownKeepsUnfinishedKeys checks that a pass over lines of keys drops the finished ones among those that it visits, and no
// others, and that the next pass visits others.
func TestShutdownKeepsUnfinishedKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 3))
	for range 200 {
		lines, want := make([][]int, 1+rng.IntN(400)), [][]int{}
		most := max(1, paysNow/len(lines))
		for i := range lines {
			var first, last []int
			for range 1 + rng.IntN(20) {
				key := rng.IntN(1000)
				lines[i] = append(lines[i], key)
				switch {
				case len(last) == most:
					first = append(first, key)
				case key%2 == 1:
					last = append(last, key)
				}
			}
			if left := slices.Concat(first, last); len(left) > 0 {
				want = append(want, left)
			}
		}
		got := again(lines, func(key int) bool { return key%2 == 0 })
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("left %v, want %v", got, want)
		}
	}
}

// TestKeysWithoutDebts checks that Shutdown, which does not expand a key that owes nothing in its compact form, passes over no key
// that owes units, has a sync in flight or holds units that go back.
func TestKeysWithoutDebts(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(100, time.Second, 100), hybridlimit.FixedWindow(100, time.Minute), hybridlimit.SlidingWindow(100, time.Second),
	} {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
			link := redistest.NewBubble(t).Link()
			link.Latency(time.Millisecond, time.Millisecond)
			l, err := New(link.Client(nil), limit, Config{Name: "api", Hub: HubConfig{Logger: slog.New(slog.DiscardHandler)}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := l.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2300 * time.Millisecond)
			passed, owed := 0, 0
			for range 3000 {
				key := fmt.Sprint("k", rng.IntN(60))
				if rng.IntN(10) == 0 {
					_, err = l.Refund(t.Context(), key, 1)
				} else {
					_, err = l.AllowN(t.Context(), key, 1+rng.Int64N(3))
				}
				if err != nil {
					t.Fatal(err)
				}
				if rng.IntN(20) == 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
				}
				e := l.terms.Store.Peek(key)
				e.Mu.Lock()
				passes := e.OwesNothing()
				e.Mu.Unlock()
				_, open, onItsWay := e.Unsettled()
				switch {
				case open > 0 || onItsWay:
					if owed++; passes {
						t.Fatalf("%v: key %s has %d units open, and a sync in flight: %v", limit, key, open, onItsWay)
					}
				case passes:
					passed++
				}
			}
			if passed == 0 || owed == 0 {
				t.Errorf("%v: %d keys owed nothing and %d owed units: the test needs both", limit, passed, owed)
			}
		})
	}
}
