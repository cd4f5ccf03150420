package notice

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/periods"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

// TestWindowOf draws a time of the clock that decides, the ResetAfter of all kinds of states, and a clock of the process
// that is off by less than half a period. The window is always the one of the clock that decides.
func TestWindowOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := time.Duration(rapid.Int64Range(1, int64(40*24*time.Hour/time.Microsecond)).Draw(t, "period")) * time.Microsecond
		limit := hybridlimit.FixedWindow(10, period)
		at := rapid.Int64Range(-1e18, 4e18).Draw(t, "at")
		want := (&terms{limit: limit}).at(at)
		if want.begin > at || want.end <= at || want.begin%int64(period) != 0 || want.end-want.begin != int64(period) {
			t.Fatalf("bounds of %d: %v", at, want)
		}
		more := rapid.Int64Range(0, 5).Draw(t, "windows of debt, or 1 for a sliding window")
		res := hybridlimit.Result{ResetAfter: time.Duration(want.end - at + more*int64(period))}
		if at == want.begin { // as an unknown end: by the clock of the process
			res.ResetAfter--
		}
		skew := rapid.Int64Range(-(int64(period)-1)/2, (int64(period)-1)/2).Draw(t, "skew")
		if got := (&terms{limit: limit}).windowOf(time.Unix(0, at+skew), &res); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestWindowOfACalendar is TestWindowOf for periods of all lengths. A clock may be off by nearly half of the shorter of
// two periods.
func TestWindowOfACalendar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := hybridlimit.CalendarWindow(10, hybridlimit.Calendar{
			Unit: hybridlimit.CalendarUnit(rapid.IntRange(int(hybridlimit.Day), int(hybridlimit.Year)).Draw(t, "unit")),
			Zone: rapid.SampledFrom([]string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"}).Draw(t, "zone"),
		})
		at := rapid.Int64Range(0, 2e18).Draw(t, "at")
		bounds := func(at int64) window {
			begin, end, err := limit.Calendar.Bounds(time.Unix(0, at))
			if err != nil {
				t.Fatal(err)
			}
			return window{begin.UnixNano(), end.UnixNano()}
		}
		want := bounds(at)
		next := bounds(want.end)
		ends, shorter := want.end, min(want.end-want.begin, next.end-next.begin)
		if rapid.Bool().Draw(t, "in debt") {
			ends, shorter = next.end, min(next.end-next.begin, bounds(next.end).end-next.end)
		}
		skew := rapid.Int64Range(-shorter/2+1, shorter/2-1).Draw(t, "skew")
		of := &terms{limit: limit, periods: periods.Of(limit.Calendar)}
		res := hybridlimit.Result{ResetAfter: time.Duration(ends - at)}
		if int64(res.ResetAfter)%int64(limit.TimeToFull()) == 0 {
			res.ResetAfter--
		}
		if got := of.windowOf(time.Unix(0, at+skew), &res); got != want || !got.has(at) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestWindowFromUse rounds to the second, and snaps to a window that is known.
func TestWindowFromUse(t *testing.T) {
	const minute = int64(time.Minute)
	of := &terms{limit: hybridlimit.WindowFromUse(10, time.Minute)}
	want := window{1_800_000_000e9, 1_800_000_060e9}
	for _, after := range []int64{0, 1, minute / 3, minute - 1} {
		for _, debt := range []int64{0, minute} {
			for _, skew := range []int64{-499e6, 0, 499e6} {
				now := time.Unix(0, want.begin+after+skew)
				if got := of.windowOf(now, &hybridlimit.Result{ResetAfter: time.Duration(minute - after + debt)}); got != want {
					t.Errorf("after %d with a debt of %d and a clock %d off: %v, want %v", after, debt, skew, got, want)
				}
			}
		}
	}
	var m *twoMasks
	if got := m.snapped(want); got != want {
		t.Errorf("%v", got)
	}
	m, _ = m.with(masks{window: want})
	later := window{want.end, want.end + minute}
	for _, off := range []int64{-20e9, -1e9, 0, 1e9, 20e9} {
		if got := m.snapped(window{want.begin + off, want.end + off}); got != want {
			t.Errorf("off by %d: %v", off, got)
		}
		if got, own := m.snapped(window{later.begin + off, later.end + off}), (window{later.begin + off, later.end + off}); got != own {
			t.Errorf("the next window, off by %d: %v", off, got)
		}
	}
}

// TestWindowOfNoBorder has values of ResetAfter that tell no border. The clock of the process counts.
func TestWindowOfNoBorder(t *testing.T) {
	limit := hybridlimit.FixedWindow(10, time.Minute)
	now := time.Unix(1_800_000_055, 7)
	for _, reset := range []time.Duration{0, time.Minute, 2 * time.Minute, hybridlimit.Never, hybridlimit.Never - time.Hour, -time.Second} {
		got := (&terms{limit: limit}).windowOf(now, &hybridlimit.Result{ResetAfter: reset})
		if want := (window{1_800_000_000e9, 1_800_000_060e9}); got != want {
			t.Errorf("%v: %v, want %v", reset, got, want)
		}
	}
}

// TestMasks keeps the marks of the newest window and of the one before.
func TestMasks(t *testing.T) {
	at := func(begin, end int64) window { return window{begin, end} }
	var m *twoMasks
	tell := func(w window, mask uint32) (replaced masks) {
		t.Helper()
		one := m.of(w)
		one.told |= mask
		m, replaced = m.with(one)
		return replaced
	}
	tell(at(10, 20), 1)
	tell(at(20, 30), 1)
	tell(at(10, 20), 2) // late
	tell(at(20, 30), 2)
	if m.now != (masks{at(20, 30), 3, 0}) || m.before != (masks{at(10, 20), 3, 0}) {
		t.Errorf("%+v", m)
	}
	if got := tell(at(30, 40), 1); got != (masks{at(10, 20), 3, 0}) {
		t.Errorf("replaced %+v", got)
	}
	if one := m.of(at(10, 20)); one.told != 0 {
		t.Error("a window before the last two is known")
	}
	tell(at(40, 50), 1)
	tell(at(50, 60), 1)
	tell(at(70, 80), 1)
	if tell(at(60, 70), 1); m.now.window != at(70, 80) || m.before.window != at(60, 70) {
		t.Errorf("after a late window between the two: %+v", m)
	}
	tell(at(0, 100), 4) // another period: it is later, because it ends later
	if one := m.of(at(0, 100)); one.told != 4 {
		t.Errorf("%+v", one)
	}
	tell(at(80, 81), 1) // and a shorter one in it
	if one := m.of(at(0, 100)); one.told != 4 || m.now.window != at(80, 81) {
		t.Errorf("%+v", m)
	}
	for begin := int64(10); begin < 50; begin += 10 { // the clock has stepped back: nothing is lost
		tell(at(begin, begin+10), 1)
		if one := m.of(at(begin, begin+10)); one.told != 1 || m.now.window != at(80, 81) {
			t.Errorf("%+v", m)
		}
	}
}

// TestIDs has one id for each limiter, key, window and threshold, whatever the borders of the texts.
func TestIDs(t *testing.T) {
	const want = "21b01d28e81b02f6d6d7b991c3295d24"
	if got := id("api", "ann", window{0, 60e9}, 0.8); got != want {
		t.Errorf("the id is %s, want %s: receivers keep ids over versions", got, want)
	}
	seen := map[string]bool{}
	for _, limiter := range []string{"", "a", "ab"} {
		for _, key := range []string{"a", "b", "ba", string(make([]byte, 600))} {
			for _, w := range []window{{0, 60}, {60, 120}, {0, 120}, {-60, 0}} {
				for _, at := range []float64{0.5, 0.8, 1} {
					seen[id(limiter, key, w, at)] = true
				}
			}
		}
	}
	if len(seen) != 3*4*4*3 {
		t.Errorf("%d ids, want %d", len(seen), 3*4*4*3)
	}
}
