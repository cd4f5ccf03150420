package testenv_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// At any time, half of the window is left.
func TestOpenWindow(t *testing.T) {
	day := time.Date(2026, time.March, 29, 0, 0, 0, 0, time.UTC)
	for _, per := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 1000 * time.Hour} {
		for _, n := range []int64{1, 5, 1000} {
			for at := day; at.Before(day.Add(24 * time.Hour)); at = at.Add(7*time.Minute + 59*time.Second) {
				p := testenv.OpenWindow(at, n, per)
				window := time.Duration(n) * p
				into := time.Duration(at.UnixNano() % int64(window))
				if p < per || p > 2*per || p%time.Microsecond != 0 || into > window/2 {
					t.Errorf("at %v, %d × %v: period %v, of whose window %v have passed", at, n, per, p, into)
				}
			}
		}
	}
	if p := testenv.OpenWindow(day, 1, time.Hour); p != time.Hour {
		t.Errorf("%v at midnight, want the hour", p)
	}
}
