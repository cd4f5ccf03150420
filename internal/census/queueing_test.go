package census_test

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/census"
)

func TestQueueing(t *testing.T) {
	for _, tc := range []struct {
		n    int64
		want time.Duration
	}{{-1, 0}, {0, 0}, {1, 200 * time.Microsecond}, {1250, 250 * time.Millisecond}, {10_000, 2 * time.Second}, {20_000, 4 * time.Second}, {math.MaxInt64, 4 * time.Second}} {
		if got := census.Queueing(tc.n); got != tc.want {
			t.Errorf("%d processes: %v, want %v", tc.n, got, tc.want)
		}
	}
}
