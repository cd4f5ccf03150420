//go:build search

package rules_test

import (
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// The time of Find grows with the bytes of a descriptor, and not with their square: 32 entries of 1 MB do not take much
// longer than eight times four of them, which are as many bytes.
func TestFindIsLinear(t *testing.T) {
	s, of := deep(t)
	ratio := func() float64 {
		fastest := func(d *ratelimit.RateLimitDescriptor, times int) time.Duration {
			best := time.Hour
			for range 3 {
				start := time.Now()
				for range times {
					s.Find("d", d)
				}
				best = min(best, time.Since(start))
			}
			return best
		}
		return float64(fastest(of(32), 1)) / float64(fastest(of(4), 8))
	}
	// Quadratic time would make this 8. A busy machine slows both: the least of some tries counts.
	least := ratio()
	for range 4 {
		if least < 3 {
			return
		}
		least = min(least, ratio())
	}
	t.Errorf("32 entries take %.1f times as long as eight times 4 entries", least)
}
