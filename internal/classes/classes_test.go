package classes_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/classes"
)

// TestPlaces looks up names as a program does, and as an adapter does: only a known name is critical there.
func TestPlaces(t *testing.T) {
	declared := []hybridlimit.Class{{Name: "batch", Floor: 0.4}, {Name: "normal", Floor: 0.1}}
	for _, c := range []struct {
		declared  []hybridlimit.Class
		name      string
		find, of  int
		undefined bool
	}{
		{declared, "critical", 0, 0, false},
		{declared, "batch", 1, 1, false},
		{declared, "normal", 2, 2, false},
		{declared, "Critical", 0, 1, true},
		{declared, "", 0, 1, true},
		{nil, "critical", 0, 0, false},
		{nil, "batch", 0, 0, true},
		{nil, "", 0, 0, true},
	} {
		s := classes.Of(c.declared)
		place, err := s.Find("local", "api", c.name)
		if place != c.find || errors.Is(err, hybridlimit.ErrInvalid) != c.undefined || s.For(c.name) != c.of {
			t.Errorf("%q of %v: Find %d, %v, For %d, want %d, %d", c.name, c.declared, place, err, s.For(c.name), c.find, c.of)
		}
	}
	for i, upper := range []bool{true, false, true} {
		if c := classes.Of(declared)[i]; c.Upper != upper || c.Place != i {
			t.Errorf("%+v, want Upper %v and place %d", c, upper, i)
		}
	}
}

// A floor makes the Rate of a window smaller, and the Burst of a bucket.
func TestWithout(t *testing.T) {
	day := hybridlimit.Calendar{Unit: hybridlimit.Day}
	for _, tc := range []struct{ limit, want hybridlimit.Limit }{
		{hybridlimit.PerSecond(10), hybridlimit.TokenBucket(10, time.Second, 7)},
		{hybridlimit.LeakyBucket(10, time.Second, 20), hybridlimit.LeakyBucket(10, time.Second, 17)},
		{hybridlimit.FixedWindow(10, time.Second), hybridlimit.FixedWindow(7, time.Second)},
		{hybridlimit.SlidingWindow(10, time.Second), hybridlimit.SlidingWindow(7, time.Second)},
		{hybridlimit.CalendarWindow(10, day), hybridlimit.CalendarWindow(7, day)},
	} {
		if got := classes.Without(tc.limit, 3); got != tc.want {
			t.Errorf("%v without 3: %v, want %v", tc.limit, got, tc.want)
		}
		if got := classes.Without(tc.limit, 0); got != tc.limit {
			t.Errorf("%v without a floor: %v", tc.limit, got)
		}
	}
}
