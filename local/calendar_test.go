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
