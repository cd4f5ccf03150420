package fallback_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit/internal/fallback"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

const sec = int64(1e9)

func bucket(rate float64, burst int64) fallback.Size {
	return fallback.Size{Burst: burst, PerNs: rate / 1e9}
}

// TestPutIsExact checks that units which are put back at the instant at which they were taken leave no trace. rate.Limiter does
// not say that it takes a negative number of tokens.
func TestPutIsExact(t *testing.T) {
	for _, s := range []fallback.Size{bucket(2, 10), {Burst: 10, PerNs: 1e-9, Period: 10 * sec}, {Burst: 10, PerNs: 1e-9, Period: 10 * sec, Sliding: true}} {
		h := fallback.New(1)
		now := 100 * sec
		for range 7 {
			h.Take("k", s, 1, now)
		}
		for i := range int64(3) {
			was := h.Left("k", s, now)
			if !h.Take("k", s, 3, now) {
				t.Fatal("3 of 3 units are missing")
			}
			h.Put("k", s, 3, now)
			if got := h.Left("k", s, now); math.Abs(got-was) > 1e-6 {
				t.Errorf("%+v: %g units, want %g", s, got, was)
			}
			now += i * sec / 10
		}
		now += 1000 * sec
		if got := h.Left("k", s, now); got != 10 {
			t.Errorf("%+v: %g units, want the burst of 10", s, got)
		}
	}
}

// TestSharesNeverAbove checks the bound of a share: a bucket admits at most its burst and its refill in any time, and a window at most
// its burst between two borders. Sizes change, and shares are lowered, on the way.
func TestSharesNeverAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fallback.Size{Burst: rapid.Int64Range(1, 20).Draw(t, "burst"), PerNs: rapid.Float64Range(0.01, 50).Draw(t, "rate") / 1e9}
		if rapid.Bool().Draw(t, "window") {
			s.Period = rapid.Int64Range(1, 20).Draw(t, "period") * sec
			s.Sliding = rapid.Bool().Draw(t, "sliding")
		}
		h := fallback.New(1)
		now, began := 1000*sec, 1000*sec
		var admitted, here, window int64
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			now += rapid.Int64Range(0, 2*sec).Draw(t, "step")
			if s.Period > 0 {
				w := (now - began) / s.Period
				if s.Ends = began + (w+1)*s.Period; w != window {
					window, here = w, 0
				}
			}
			n := rapid.Int64Range(1, 5).Draw(t, "n")
			left, wait := h.Left("k", s, now), h.Wait("k", s, n, now)
			took := h.Take("k", s, n, now)
			if took != (float64(n) <= left+1e-6) || took != (wait >= 0 && float64(wait) <= 2+2e-6/s.PerNs) {
				t.Fatalf("%d units of %g, wait %d: %t", n, left, wait, took)
			}
			if took {
				admitted, here = admitted+n, here+n
			}
			if s.Period == 0 && float64(admitted) > float64(s.Burst)+s.PerNs*float64(now-began)+1e-2 {
				t.Fatalf("%d units in %g s", admitted, float64(now-began)/1e9)
			}
			if s.Period > 0 && here > s.Burst {
				t.Fatalf("%d units of %d in a window", here, s.Burst)
			}
			if rapid.IntRange(0, 9).Draw(t, "lower") == 0 {
				level := rapid.Float64Range(0, 20).Draw(t, "level")
				h.Lower("k", s, level, now)
				if got := h.Left("k", s, now); got > level+1e-2 {
					t.Fatalf("lowered to %g, %g left", level, got)
				}
			}
		}
	})
}

// TestWaitIsRight checks that Take succeeds after the wait, and not before nine tenths of it.
func TestWaitIsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fallback.Size{Burst: rapid.Int64Range(2, 20).Draw(t, "burst"), PerNs: rapid.Float64Range(0.01, 50).Draw(t, "rate") / 1e9}
		if rapid.Bool().Draw(t, "window") {
			s.Period, s.Sliding = rapid.Int64Range(1, 20).Draw(t, "period")*sec, rapid.Bool().Draw(t, "sliding")
		}
		h := fallback.New(1)
		now := 1000 * sec
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now += rapid.Int64Range(0, sec/2).Draw(t, "step")
			h.Take("k", s, 1, now)
		}
		n := rapid.Int64Range(1, s.Burst).Draw(t, "n")
		wait := h.Wait("k", s, n, now)
		if h.Left("k", s, now) < float64(n)-1e-2 && wait > 1000 && h.Take("k", s, n, now+wait*9/10) {
			t.Fatalf("%d units are there before %d ns", n, wait)
		}
		if !h.Take("k", s, n, now+wait) {
			t.Fatalf("%d units are missing after %d ns: %g", n, wait, h.Left("k", s, now+wait))
		}
	})
}

// TestSizeChanges checks that a change of the size keeps the units left, as far as the new burst permits.
func TestSizeChanges(t *testing.T) {
	window := fallback.Size{Burst: 10, PerNs: 1e-9, Period: 10 * sec}
	saved := fallback.Size{Burst: 1, PerNs: 1e-10, Period: 10 * sec, Saved: true}
	for _, tc := range []struct {
		name     string
		from, to fallback.Size
		took     int64
		want     float64
	}{
		{"more burst", bucket(1, 10), bucket(1, 100), 4, 6},
		{"less burst", bucket(1, 10), bucket(1, 3), 4, 3},
		{"another rate", bucket(1, 10), bucket(5, 10), 4, 6},
		{"a larger window", window, fallback.Size{Burst: 20, PerNs: 2e-9, Period: 10 * sec}, 4, 16},
		{"a window of another period", window, fallback.Size{Burst: 10, PerNs: 1e-9, Period: 20 * sec}, 4, 6},
		{"a window below one unit", window, saved, 5, 0.5},
		{"and back", saved, window, 1, 0},
	} {
		h := fallback.New(1)
		if !h.Take("k", tc.from, tc.took, sec) {
			t.Fatal(tc.name)
		}
		if got := h.Left("k", tc.to, sec); math.Abs(got-tc.want) > 1e-3 {
			t.Errorf("%s, by a look: %g left, want %g", tc.name, got, tc.want)
		}
		if got := h.Left("k", tc.from, sec); math.Abs(got-float64(tc.from.Burst-tc.took)) > 1e-3 {
			t.Errorf("%s: a look has changed the share: %g left", tc.name, got)
		}
		h.Take("k", tc.to, tc.to.Burst+1, sec) // is refused
		h.Put("k", tc.to, 0, sec)
		if got := h.Left("k", tc.to, sec); math.Abs(got-tc.want) > 1e-3 {
			t.Errorf("%s: %g left, want %g", tc.name, got, tc.want)
		}
	}
}

// TestBoundedShares checks that made up keys take no more memory than MaxKeys and the common shares, that they give no key a new
// share, and that nothing is left when all are full again.
func TestBoundedShares(t *testing.T) {
	const keys = 100
	h, s := fallback.New(keys), bucket(0.1, 5)
	take := func(key string, now int64) (units int64) {
		for h.Take(key, s, 1, now) {
			units++
		}
		return units
	}
	if got := take("used up", sec); got != 5 {
		t.Fatalf("%d units of 5", got)
	}
	var all int64
	for i := range 20_000 {
		all += take(fmt.Sprint("made up ", i), sec)
	}
	if most := int64(5 * (keys + 4096)); all > most || all < most/2 {
		t.Errorf("%d units for 20 000 keys, want at most %d", all, most)
	}
	if n := h.Len(); n > keys+4096 {
		t.Errorf("%d shares", n)
	}
	if got := take("used up", sec); got != 0 {
		t.Errorf("%d units for a key that was used up", got)
	}
	h.Release(50 * sec)
	if h.Len() == 0 {
		t.Error("the shares were dropped before they were full")
	}
	if got := take("used up", 11*sec+1); got != 1 {
		t.Errorf("%d units after 10 s, want 1", got)
	}
	h.Release(200 * sec)
	if n := h.Len(); n != 0 {
		t.Errorf("%d full shares stay", n)
	}
	if got := take("used up", 200*sec); got != 5 {
		t.Errorf("%d units of a new share", got)
	}
}

// TestCommonSharesOfSeveralLimits checks that a key whose share is common gets nothing back by keys of faster limits, and that its
// limit slows none of them down. Cause: the keys of a cell had one share, which took over the speed of the last call.
func TestCommonSharesOfSeveralLimits(t *testing.T) {
	slow, window, fast := bucket(0.001, 5), fallback.Size{Burst: 5, PerNs: 5 / 3600e9, Period: 3600 * sec}, bucket(100, 10)
	h := fallback.New(1)
	h.Take("in the LRU", slow, 5, sec)
	for i := range 500 {
		h.Lower(fmt.Sprint("slow ", i), slow, 0, sec)
		h.Lower(fmt.Sprint("window ", i), window, 0, sec)
	}
	for round := range int64(3) {
		now, denied := (1+round)*sec, 0
		for i := range 10_000 { // in most cells
			if !h.Take(fmt.Sprint("fast ", i), fast, 1, now) {
				denied++
			}
		}
		if round > 0 && denied > 20 {
			t.Errorf("%d of 10 000 calls under a fast limit were denied in second %d", denied, round)
		}
		for i := range 500 {
			if h.Take(fmt.Sprint("slow ", i), slow, 1, now) || h.Take(fmt.Sprint("window ", i), window, 1, now) {
				t.Fatalf("key %d got a unit back", i)
			}
		}
	}
}

// TestCommonSharesAreBounded checks that limits of many sizes take no more memory than eight in each cell, and that another size
// gives no key its units anew.
func TestCommonSharesAreBounded(t *testing.T) {
	h := fallback.New(1)
	h.Take("in the LRU", bucket(0.001, 5), 5, sec)
	for size := range int64(20) {
		for i := range 20_000 {
			for key, s := fmt.Sprint("key ", i), bucket(0.001, 5+size); h.Take(key, s, 1, sec); {
				if size > 0 {
					t.Fatalf("a key got units under limit %d after all were used up", size)
				}
			}
		}
	}
	if n := h.Len(); n > 1+8*4096 || n < 8*4000 {
		t.Errorf("%d shares", n)
	}
}

// TestFullSharesMakeRoom checks that a key that is used again and again keeps its share beside new keys, and that shares which
// are full again make room.
func TestFullSharesMakeRoom(t *testing.T) {
	h, s := fallback.New(10), bucket(1, 1)
	now := sec
	for i := range 1000 {
		now += sec / 5
		if !h.Take(fmt.Sprint("key ", i), s, 1, now) {
			t.Fatalf("key %d has no share", i)
		}
		if h.Len() > 10 {
			t.Fatalf("%d shares, so one was common", h.Len())
		}
	}
}

// TestOneLeavesToOthers checks that a class leaves its floor.
func TestOneLeavesToOthers(t *testing.T) {
	h, s := fallback.New(1), bucket(1, 10)
	low := s
	low.Floor = 4
	var units int
	for h.Take("k", low, 1, sec) {
		units++
	}
	for h.Take("k", s, 1, sec) {
		units++
	}
	if units != 10 || h.Wait("k", low, 7, sec) >= 0 || h.Wait("k", low, 6, sec) < 9*sec {
		t.Errorf("%d units, wait %d for 7 and %d for 6", units, h.Wait("k", low, 7, sec), h.Wait("k", low, 6, sec))
	}
}
