package census_test

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/census"
)

func TestQueueing(t *testing.T) {
	for _, tc := range []struct {
		n, ops int64
		want   time.Duration
	}{
		{-1, 1, 0},
		{0, 1, 0},
		{1, 0, 200 * time.Microsecond},
		{1250, 1, 250 * time.Millisecond},
		{10_000, 1, 2 * time.Second},
		{1000, 64, 2090 * time.Millisecond},
		{20_000, 1, 4 * time.Second},
		{math.MaxInt64, 1, 4 * time.Second},
	} {
		if got := census.Queueing(tc.n, tc.ops); got != tc.want {
			t.Errorf("%d processes with %d ops: %v, want %v", tc.n, tc.ops, got, tc.want)
		}
	}
	if got := census.Queueing(5000, 64); got > census.MaxQueueing || got < census.MaxQueueing-10*time.Millisecond {
		t.Errorf("5000 processes with full batches: %v", got)
	}
}
