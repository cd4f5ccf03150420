package clock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// A process that waits for a core measures the wait, and remembers it for about a second. A process that does not
// wait is never late.
func TestLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		defer c.Close()
		if c.Stamp(); c.Late() != 0 {
			t.Errorf("%v late at first", c.Late())
		}
		time.Sleep(20 * Tick)
		synctest.Wait()
		if c.Late() != 0 {
			t.Errorf("%v late though every tick came in time", c.Late())
		}
		held := make(chan struct{})
		c.aged = func() { <-held }
		c.epoch.Add(1 << (EpochBits - 2))
		time.Sleep(Tick) // holds the ticker's goroutine
		synctest.Wait()
		time.Sleep(26 * Tick)
		if got := c.Late(); got != 25*Tick {
			t.Errorf("%v late while the ticker is held for 130 ms, want 125 ms", got)
		}
		close(held)
		for range 100 {
			time.Sleep(Tick)
			c.Stamp() // the slow path is in use, so the ticker continues
		}
		if got := c.Late(); got < 25*Tick/2 || got > 25*Tick {
			t.Errorf("%v late half a second later", got)
		}
		for range 1000 {
			time.Sleep(Tick)
			c.Stamp()
		}
		if got := c.Late(); got > Tick {
			t.Errorf("%v late five seconds later", got)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if c.runs.Load() || c.Late() != 0 {
			t.Errorf("%v late with no ticker", c.Late())
		}
	})
}

// A goroutine whose answer has come from the network waits behind all runnable goroutines. The ticker does not wait
// there, so only the queue shows how long answers stay unread.
func TestAnswersLieUnread(t *testing.T) {
	c := New(nil)
	defer c.Close()
	c.Stamp()
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

// A wait counts while it lasts.
func TestLateWhileItWaits(t *testing.T) {
	var l lateness
	l.queue.Store(int64(3 * Tick))
	l.since.Store(int64(100 * Tick))
	for _, tc := range []struct{ now, want int64 }{{101, 3}, {103, 3}, {140, 40}} {
		if got := l.late(tc.now*int64(Tick), tc.now*int64(Tick)); got != time.Duration(tc.want)*Tick {
			t.Errorf("after %d ticks in the queue: late by %v, want %d ticks", tc.now-100, got, tc.want)
		}
	}
}
