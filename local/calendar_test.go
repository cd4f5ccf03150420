package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestWindowsBeginAtTheEpoch checks that windows begin at multiples of their length
// since the Unix epoch, as FixedWindow documents. A week begins on a Thursday.
func TestWindowsBeginAtTheEpoch(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		window time.Duration
		ends   time.Time // end of the window that contains 2000-01-01, a Saturday
	}{
		{time.Hour, time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)},
		{day, time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)},
		{7 * day, time.Date(2000, 1, 6, 0, 0, 0, 0, time.UTC)},
	} {
		l, now := at(t, hybridlimit.FixedWindow(10, tc.window), Config{})
		res, err := l.allowAt(now, "k", 1)
		if ends := now.Add(res.ResetAfter); err != nil || !ends.Equal(tc.ends) {
			t.Errorf("a window of %v ends %v, want %v; %v", tc.window, ends, tc.ends, err)
		}
		if tc.window == 7*day && tc.ends.Weekday() != time.Thursday {
			t.Errorf("%v is a %v", tc.ends, tc.ends.Weekday())
		}
	}
}

// TestCalendarDebt checks that units charged beyond a period count in the next one.
func TestCalendarDebt(t *testing.T) {
	limit := hybridlimit.CalendarWindow(10, hybridlimit.Calendar{Unit: hybridlimit.Month, Zone: "Europe/Berlin", Anchor: 15})
	l, now := at(t, limit, Config{})
	if res, err := l.chargeAt(now, "k", 14, ""); err != nil || res.Remaining != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	border := time.Date(2000, 1, 15, 0, 0, 0, 0, berlin)
	if res := mustPeek(t, l, now); res.Allowed || !now.Add(res.RetryAfter).Equal(border) || !now.Add(res.ResetAfter).Equal(border.AddDate(0, 1, 0)) {
		t.Errorf("in debt: %+v", res)
	}
	if res := mustPeek(t, l, border.Add(-1)); res.Allowed {
		t.Errorf("before the border: %+v", res)
	}
	if res := ask(t, l, border, "k", 6); !res.Allowed || res.Remaining != 0 {
		t.Errorf("six of ten, of which four were used before: %+v", res)
	}
}

// TestWindowFromUse checks that a period begins with a use, and not with a look or a call that is denied.
func TestWindowFromUse(t *testing.T) {
	l, now := at(t, hybridlimit.WindowFromUse(2, time.Hour), Config{})
	for range 3 {
		if res := mustPeek(t, l, now); !res.Allowed || res.ResetAfter != 0 {
			t.Fatalf("unused: %+v", res)
		}
		now = now.Add(40 * time.Minute)
	}
	begin := now
	ask(t, l, begin, "k", 2)
	now = begin.Add(59 * time.Minute)
	if res := ask(t, l, now, "k", 1); res.Allowed || res.RetryAfter != time.Minute {
		t.Errorf("in the period: %+v", res)
	}
	now = begin.Add(time.Hour + 20*time.Minute)
	if res := ask(t, l, now, "k", 1); !res.Allowed || res.ResetAfter != time.Hour {
		t.Errorf("the next period begins with its first use: %+v", res)
	}
	if res, err := l.chargeAt(now, "k", 2, ""); err != nil || res.Remaining != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if res := ask(t, l, now.Add(time.Hour), "k", 1); !res.Allowed || res.Remaining != 0 || res.ResetAfter != time.Hour {
		t.Errorf("a debt begins the next period at once: %+v", res)
	}
}
