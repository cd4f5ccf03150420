//go:build search

package clock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// A goroutine whose answer has come from the network waits behind all runnable goroutines. The ticker does not wait
// there, so only the queue shows how long answers stay unread.
func TestAnswersLieUnread(t *testing.T) {
	c := New(nil)
	defer c.Close()
	c.Begin()
	defer c.End()
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 12 * runtime.GOMAXPROCS(0) { // each runs for 10 ms at a time
		wg.Go(func() {
			for spins := 0; !stop.Load(); spins++ {
				_ = spins
			}
		})
	}
	redistest.Eventually(t, 10*time.Second, "late by 40 ms", func() bool {
		c.Stamp()
		return c.lateness.queue.Load() > int64(40*time.Millisecond)
	})
	if got := c.Late(); got < 40*time.Millisecond {
		t.Errorf("Late = %v, want at least 40 ms; the wait in the queue is %v", got, time.Duration(c.lateness.queue.Load()))
	}
	t.Logf("%d goroutines that spin on %d cores: the end of the queue waits for %v, the ticker is %v late", 12*runtime.GOMAXPROCS(0), runtime.GOMAXPROCS(0),
		time.Duration(c.lateness.queue.Load()).Round(time.Millisecond), time.Duration(c.lateness.timer.Load()).Round(time.Millisecond))
	stop.Store(true)
	wg.Wait()
	redistest.Eventually(t, 20*time.Second, "late by less than 20 ms", func() bool {
		c.Stamp()
		return c.lateness.queue.Load() < int64(20*time.Millisecond)
	})
}
