package direct

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// TestLong checks that a wait is evidence against Redis only if it is long beside the round trip, without the time by which the
// process itself is late.
func TestLong(t *testing.T) {
	for _, tc := range []struct {
		late, trip, wait time.Duration
		want             bool
	}{
		{0, 0, 4 * time.Millisecond, false},
		{0, 0, 5 * time.Millisecond, true},
		{30 * time.Millisecond, 0, 34 * time.Millisecond, false},
		{30 * time.Millisecond, 0, 35 * time.Millisecond, true},
		{0, 10 * time.Millisecond, 39 * time.Millisecond, false},
		{0, 10 * time.Millisecond, 40 * time.Millisecond, true},
	} {
		e := Env{Trip: new(atomic.Int64), Engine: ratesync.New(ratesync.Config{
			Names: lua.Names{Tags: 1}, Timeout: time.Second, Late: func() time.Duration { return tc.late },
		})}
		e.Trip.Store(int64(tc.trip))
		if got := e.Long(tc.wait); got != tc.want {
			t.Errorf("late by %v, a round trip of %v: %v is long: %t", tc.late, tc.trip, tc.wait, got)
		}
	}
}
