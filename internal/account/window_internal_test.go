package account

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// windowTerms is stepTerms for a fixed window of 10 per second.
func windowTerms() *Conditions {
	t, r := stepTerms(), NewPlan(hybridlimit.FixedWindow(10, time.Second))
	t.Bucket, t.Window, t.Limit = r.Bucket, r.Window, r.Limit
	return t
}

// inWindow returns an account that heard of a window's level and end at 1 s. It had asked one round trip earlier, at the given
// Redis time.
func inWindow(t *Conditions, redisNow, level, ends int64) *Account {
	s := &Account{frozen: true}
	s.settle(t, Answer{Answer: algo.Answer{Level: level, Cap: t.Bucket.Cap, Ends: ends}, RedisNow: redisNow, Sent: sec - ms}, nil, sec)
	return s
}

// The fast path spends a budget for up to two ticks after it was loaded. Units spent after the end of the window would count in
// the last window. They may be free of charge there, and the current window would admit them once more.
func TestCreditWordEndsWithItsWindow(t *testing.T) {
	tm := windowTerms()
	s := inWindow(tm, 5e6+500e3, 10, 500e3)
	s.owe(1, s.view.window)
	end := s.view.ends
	if end != sec-ms+500*ms {
		t.Fatalf("the view ends at %d", end)
	}
	for _, tc := range []struct {
		now  int64
		want Budget
	}{
		{end - 2*tm.Tick, Budget{CreditBudget, 3}},
		{end - 2*tm.Tick + 1, Budget{}},
		{end - 1, Budget{}},
	} {
		one := *s
		if got, _ := one.Load(tm, tc.now); got != tc.want {
			t.Errorf("%d ns before its end: %v, want %v", end-tc.now, got, tc.want)
		}
	}
	if got := s.CreditLeft(tm, end-1); got != 3 {
		t.Errorf("%d units of credit at the end, want 3", got)
	}
}

// If Redis's clock stepped back, it may be before the window in which Redis counts. Owed units belong to that window, not to
// the window of the clock. With the window of the clock they would count in the last window or, two windows back, not at all.
func TestOwedNamesTheWindowThatEnds(t *testing.T) {
	tm := windowTerms()
	for _, tc := range []struct {
		name           string
		redisNow, ends int64
		window         int64
	}{
		{"at its begin", 5e6, 1e6, 5},
		{"at its end", 6e6 - 1, 1, 5},
		{"the clock stepped back before it", 5e6 - 1, 1e6 + 1, 5},
		{"by a second", 4e6, 2e6, 5},
	} {
		s := inWindow(tm, tc.redisNow, 10, tc.ends)
		s.owe(3, s.view.window)
		if op, _ := s.freeze(tm, nil, sec); op.Win != tc.window || op.Owed != 3 {
			t.Errorf("%s: %d units owed of window %d, want 3 of %d", tc.name, op.Owed, op.Win, tc.window)
		}
	}
}

// Units owed in the last window take nothing from the current window, so they prove no denial in it.
func TestOwedOfTheLastWindowDeniesNothing(t *testing.T) {
	tm := windowTerms()
	s := inWindow(tm, 5e6+500e3, 10, 500e3)
	s.owe(2, s.view.window)
	for _, where := range []string{"pending", "in flight"} {
		for _, tc := range []struct {
			window, n int64
			denied    bool
		}{
			{5, 8, false}, // its own window
			{5, 9, true},
			{4, 10, false}, // the last window
			{0, 9, true},   // several windows: the units count where they arrive
		} {
			one := *s
			if one.window = tc.window; where == "in flight" {
				one.freeze(tm, nil, sec)
			}
			if got := one.ProvedUntil(tm, tc.n) > sec; got != tc.denied {
				t.Errorf("2 units of window %d %s, a call for %d of 10 in window 5: denied %t", tc.window, where, tc.n, got)
			}
		}
	}
}

// Units that go back to an earlier window are not left in this one: not while they wait, while their sync is in flight, or after it.
// Regression: Peek counted them while the sync was in flight.
func TestUnitsOfAnEarlierWindowAreNotLeftInThisOne(t *testing.T) {
	tm := windowTerms()
	s := inWindow(tm, 5e6+500e3, 3, 500e3)
	const want = 3
	look := func(when string) {
		if got := s.Remaining(tm, sec); got != want {
			t.Errorf("%s: %d units are left, want %d", when, got, want)
		}
	}
	look("before")
	s.Refund(tm, 5, Taken{At: 4, Direct: true}, SyncNow)
	look("they wait")
	op, ok := s.freeze(tm, nil, sec)
	if !ok || op.Refund != 5 || op.RefundAt != 4 {
		t.Fatalf("%+v, %t", op, ok)
	}
	look("in flight")
	s.settle(tm, Answer{Answer: algo.Answer{Level: 3, Cap: tm.Bucket.Cap, Ends: 400e3}, RedisNow: 5e6 + 600e3, Sent: sec}, nil, sec)
	look("after")
	s.Refund(tm, 2, Taken{At: 5, Direct: true}, SyncNow)
	if got := s.Remaining(tm, sec); got != 5 {
		t.Errorf("%d units are left with 2 that go back to this window, want 5", got)
	}
}

// TestZonesOfOneCalendar compares limits of a calendar as Redis counts them. A zone named UTC is that of no name.
func TestZonesOfOneCalendar(t *testing.T) {
	in := func(zone string) *Plan {
		return NewPlan(hybridlimit.CalendarWindow(10, hybridlimit.Calendar{Unit: hybridlimit.Day, Zone: zone}))
	}
	if !sameWindows(in("UTC"), in("")) || !sameWindows(in(""), in("UTC")) || sameWindows(in("Europe/Berlin"), in("UTC")) {
		t.Error("UTC and no zone must be one calendar, and Berlin another")
	}
}
