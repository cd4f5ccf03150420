package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestContextsThatEndInTheRoundTrip checks that Reserve and Wait lose nothing if the context of the caller ends while Redis is
// asked: all units are there afterwards, by Redis and by memory. Cause: Redis kept what it had granted, and the process counted as
// used what it may have granted.
func TestContextsThatEndInTheRoundTrip(t *testing.T) {
	t.Parallel()
	for name, limit := range together {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			t.Run(fmt.Sprint(name, ", ", mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := redistest.NewBubble(t)
					link := b.Link()
					l := newLimiter(t, link.Client(nil), limit, hybrid.Config{Mode: mode, MaxWait: 100 * time.Millisecond})
					time.Sleep(2100 * time.Millisecond)
					link.Latency(10*time.Millisecond, 10*time.Millisecond)
					var kept int64 // by calls that were served in time
					for i := range 24 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*time.Millisecond)
						began := time.Now()
						var err error
						if i%2 == 0 {
							_, err = l.Reserve(ctx, "k", 5)
						} else {
							_, err = l.Wait(ctx, "k", 5)
						}
						if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) && err != nil || took > time.Duration(1+i)*time.Millisecond {
							t.Errorf("call %d: %v after %v", i, err, took)
						}
						if err == nil {
							kept += 5
						}
						cancel()
					}
					time.Sleep(3 * time.Second)
					var got int64
					for range 150 {
						got += ask(t, l, "k", 1).Granted
					}
					if got+kept != 100 || l.Stats().Admitted != 100 {
						t.Errorf("%d of 100 units were admitted after %d were taken: %+v", got, kept, l.Stats())
					}
				})
			})
		}
	}
}
