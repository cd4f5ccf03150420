//go:build search && !race

// TestKindsOfCalls runs the same limiters under the race detector.

package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestEngineIsTheLimiter compares the engine in this package's shell with the real limiter. The limiter draws the times of its next asks
// from a source without a seed. In this small fleet at a load of 1.5, the admitted calls of a run vary by 1.2 % (standard deviation), those
// of the engine too. The means of ten runs are equal to 0.3 %.
func TestEngineIsTheLimiter(t *testing.T) {
	for load, part := range map[float64]float64{0.5: 0.05, 0.95: 0.05, 1.5: 0.1} {
		if load != 0.95 && !testenv.Full() {
			continue
		}
		s := small(Engine, load)
		s.Span = 12 * time.Second
		e := RunCalls(t, s)
		s.Kind = Limiter
		l := RunCalls(t, s)
		for what, pair := range map[string][2]int64{"admitted": {e.Admitted, l.Admitted}, "messages": {e.Messages, l.Messages}, "waited": {e.Waited, l.Waited}} {
			if math.Abs(float64(pair[0]-pair[1])) > part*float64(pair[1]) {
				t.Errorf("load %v: %s: engine %d, limiter %d", load, what, pair[0], pair[1])
			}
		}
	}
}
