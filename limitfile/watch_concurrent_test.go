package limitfile

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
)

// TestReadersBesideChanges reads a Set from many goroutines while its file changes, and while
// it is closed. Each of them sees a file that is in force.
func TestReadersBesideChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var now atomic.Int64
		now.Store(100)
		m, hub := &metertest.Provider{}, &fakeHub{}
		s, err := watch("limits.json", hub, Config{Logger: (&journal{}).logger(), MeterProvider: m}, func(string) ([]byte, error) {
			if n := now.Load(); n%10 != 9 {
				return []byte(fmt.Sprintf(`{"api": {"limit": "%d/s", "plans": {"gold": "%d/s"}}}`, n, n)), nil
			}
			return []byte("["), nil
		})
		must(t, err)
		stop := make(chan struct{})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for last := int64(0); ; time.Sleep(defaultEvery / 7) {
					select {
					case <-stop:
						return
					default:
					}
					plan, ok := s.Plan("api", "gold")
					rate := s.File().Settings()["api"].Limit.Rate
					if !ok || plan.Rate > rate || plan.Rate < last || rate%10 == 9 {
						t.Errorf("plan of %d and %d/s after %d: %v", plan.Rate, rate, last, s.Err())
					}
					last = plan.Rate
				}
			})
		}
		for range 30 {
			time.Sleep(2 * defaultEvery)
			now.Add(1)
			m.CollectFloats(t)
		}
		time.Sleep(2 * defaultEvery)
		var ends sync.WaitGroup
		for range 3 {
			ends.Go(func() { must(t, s.Close()) })
		}
		ends.Wait()
		close(stop)
		all.Wait()
		if rate, calls := hub.rate(); rate != 130 || calls != 28 {
			t.Errorf("%d/s after %d calls, want 130 after 28: 27 changes, and the first file", rate, calls)
		}
	})
}
