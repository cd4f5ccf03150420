package hybridlimit_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestUnitsOfAClass checks that a floor is rounded up, but not above half of the burst.
func TestUnitsOfAClass(t *testing.T) {
	for _, c := range []struct {
		limit hybridlimit.Limit
		floor float64
		want  int64
	}{
		{hybridlimit.PerSecond(100), 0.2, 20},
		{hybridlimit.PerSecond(100), 0.07, 7},
		{hybridlimit.PerSecond(10), 0.01, 1},
		{hybridlimit.PerSecond(7), 0.5, 3},
		{hybridlimit.PerSecond(1), 0.5, 0},
		{hybridlimit.TokenBucket(60, time.Minute, 10), 0.25, 3},
		{hybridlimit.Unlimited(), 0.5, 0},
		{hybridlimit.Concurrent(100), 0.5, 0},
		{hybridlimit.Limit{Algorithm: hybridlimit.AlgBlocked}, 0.5, 0},
	} {
		if got := (hybridlimit.Class{Name: "rest", Floor: c.floor}).Units(c.limit); got != c.want {
			t.Errorf("%v of %v: %d units, want %d", c.floor, c.limit, got, c.want)
		}
	}
}
