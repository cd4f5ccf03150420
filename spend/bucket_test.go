package spend_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestABusyBucketTakesUnitsBack has a call of two seconds in a bucket that other calls keep empty. What the call does not
// use can be taken by others: a bucket does not know which of its units have refilled. Cancel has another rule.
func TestABusyBucketTakesUnitsBack(t *testing.T) {
	for name, make := range worlds {
		if name == "hybrid deferred" { // admits on credit, so that an empty bucket does not show
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := make(t, hybridlimit.PerSecond(100))
				if w.link != nil {
					w.link.Latency(0, 0) // so that all tries have their time
				}
				s := begin(t, ask(w.limiter, 40))
				drain := func(d time.Duration) (admitted int64) {
					for range d / (10 * time.Millisecond) {
						time.Sleep(10 * time.Millisecond)
						for range 5 {
							res, err := w.limiter.AllowN(t.Context(), "k", 1)
							if err != nil {
								t.Fatal(err)
							}
							admitted += res.Granted
						}
					}
					return admitted
				}
				drain(2 * time.Second)
				if _, err := s.Use(t.Context(), 0, 10); err != nil {
					t.Error(err)
				}
				if err := s.Settle(t.Context()); err != nil {
					t.Error(err)
				}
				if got := drain(time.Second); got < 126 || got > 134 {
					t.Errorf("%d units in the second after Settle, want 100 and the 30 that came back", got)
				}
				if got := drain(time.Second); got > 104 {
					t.Errorf("%d units in the next second, want 100", got)
				}
			})
		})
	}
}
