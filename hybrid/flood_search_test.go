//go:build search && !race

package hybrid_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// heap looks at the memory between the parts of a flood.
type heap struct {
	before     float64 // bytes, when the memory of the limiter was full
	goroutines int
}

// grown returns a function that keeps the first size of the heap, and fails if a later one is above most of it.
func (h *heap) grown(t *testing.T, most func(before float64) float64) func() {
	return func() {
		now := heapNow()
		if h.before == 0 {
			h.before, h.goroutines = now, runtime.NumGoroutine()
		}
		t.Logf("heap %.1f MB, at first %.1f MB; %d goroutines", now/1e6, h.before/1e6, runtime.NumGoroutine())
		if now > most(h.before) {
			t.Errorf("the heap grew from %.0f to %.0f bytes", h.before, now)
		}
		if n := runtime.NumGoroutine(); n > h.goroutines+40 {
			t.Errorf("%d goroutines, %d at first", n, h.goroutines)
		}
	}
}

// TestHeapInAFlood checks that a flood of distinct keys takes no more memory than MaxKeys allows.
func TestHeapInAFlood(t *testing.T) {
	var h heap
	// The memory of calls in flight differs from moment to moment: up to a tenth of that of the keys, and some of go-redis and
	// the runtime.
	grown := h.grown(t, func(before float64) float64 { return before*1.1 + 2e6 })
	floodOfKeys(t, flood{memory: 10_000, hot: 20, every: 50, total: testenv.Runs(100_000, 10_000_000), grown: grown})
}

// TestHeapInAFloodWithoutRedis checks the same while Redis is missing, killed or hung, and that the memory is free again when Redis
// is back.
func TestHeapInAFloodWithoutRedis(t *testing.T) {
	mayGrow := float64(testenv.Runs(4<<20, 16<<20)) // bytes
	for _, way := range withoutRedis {
		t.Run(way.name, func(t *testing.T) {
			var h heap
			grown := h.grown(t, func(before float64) float64 { return before + mayGrow })
			way.flood(t, flood{memory: 10_000, hot: 20, every: 50, total: testenv.Runs(60_000, 1_000_000), grown: grown}, func() {
				redistest.Eventually(t, 30*time.Second, "the memory is free again", func() bool { return heapNow() < h.before*1.1+2e6 })
			})
		})
	}
}
