package hybrid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Where nobody else comes and nothing refills, the estimate of what is left is
// no estimate: it falls by what each call takes, whoever decided.
func TestRemainingCountsDown(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(500), hybrid.Config{Mode: mode})
				time.Sleep(2 * time.Second)
				sources := map[hybridlimit.Source]bool{}
				for used := int64(0); used < 400; {
					n := 1 + used%3
					res := ask(t, l, "k", n)
					used += n
					sources[res.Source] = true
					// Leases that ran out are gone.
					if want := 500 - used - l.Stats().Expired; res.Remaining != want {
						t.Fatalf("after %d units, by %v: %d remain, want %d", used, res.Source, res.Remaining, want)
					}
					time.Sleep(time.Millisecond)
				}
				if mode != hybrid.ModeExact && len(sources) < 2 {
					t.Errorf("all decided by %v", sources)
				}
			})
		})
	}
}

// Of callers that wait for one sync, each sees what that sync has left.
func TestRemainingOfWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := redistest.NewBubble(t).Link()
		l := newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(1, time.Hour, 100), hybrid.Config{Mode: hybrid.ModeDeferred})
		time.Sleep(2 * time.Second)
		link.Latency(time.Millisecond, time.Millisecond)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if res := ask(t, l, "k", 1); res.Remaining < 90 || res.Remaining > 99 {
					t.Errorf("after %v: %+v", time.Since(start), res)
				}
			})
		}
		wg.Wait()
	})
}
