//go:build !race

package notice_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// TestCallsDoNotAllocate calls a key in use, below all thresholds, between two, and above all.
func TestCallsDoNotAllocate(t *testing.T) {
	limit := hybridlimit.FixedWindow(1e9, testenv.OpenWindow(time.Now(), 1e9, time.Hour))
	for name, used := range map[string]int64{"below": 1, "between": 7e8, "above": 1e9} {
		n := watch(t, newLocal(t, limit, local.Config{}), notice.Config{At: []float64{0.5, 1}, On: func(notice.Crossing) {}})
		ask(t, n, "ann", used)
		for name, l := range map[string]hybridlimit.Limiter{name: n, name + ", of a class": n.ForClass("batch")} {
			if got := testing.AllocsPerRun(1000, func() {
				if _, err := l.Allow(t.Context(), "ann"); err != nil {
					t.Error(err)
				}
			}); got != 0 {
				t.Errorf("%s: %v allocations", name, got)
			}
		}
	}
}
