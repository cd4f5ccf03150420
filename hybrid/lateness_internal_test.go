package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/account"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// A process that waits for a core knows it, for about a second, and takes that
// off what a call took; one that does not takes off nothing.
func TestLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		defer c.close()
		if c.stamp(); c.late() != 0 {
			t.Errorf("%v late at first", c.late())
		}
		time.Sleep(20 * tick)
		synctest.Wait()
		if c.late() != 0 {
			t.Errorf("%v late though every tick came in time", c.late())
		}
		held := make(chan struct{})
		c.aged = func() { <-held }
		c.epoch.Add(1 << (account.EpochBits - 2))
		time.Sleep(tick) // holds the ticker's goroutine
		synctest.Wait()
		time.Sleep(26 * tick)
		if got := c.late(); got != 25*tick {
			t.Errorf("%v late while the ticker is held for 130 ms, want 125 ms", got)
		}
		close(held)
		for range 100 {
			time.Sleep(tick)
			c.stamp() // somebody is on the slow path: the ticker goes on
		}
		if got := c.late(); got < 25*tick/2 || got > 25*tick {
			t.Errorf("%v late half a second later", got)
		}
		for range 1000 {
			time.Sleep(tick)
			c.stamp()
		}
		if got := c.late(); got > tick {
			t.Errorf("%v late five seconds later", got)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if c.runs.Load() || c.late() != 0 {
			t.Errorf("%v late with no ticker", c.late())
		}
	})
}

// What has come from the network waits behind all that can run. The ticker does
// not: it is the queue that tells how long answers lie unread.
func TestAnswersLieUnread(t *testing.T) {
	c := newClock()
	defer c.close()
	c.stamp()
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
		c.stamp()
		return c.lateness.queue.Load() > int64(40*time.Millisecond)
	})
	if got := c.late(); got < 40*time.Millisecond {
		t.Errorf("late by %v, and the wait in the queue was %v", got, time.Duration(c.lateness.queue.Load()))
	}
	t.Logf("%d goroutines that spin on %d cores: the end of the queue waits for %v, the ticker is %v late", 12*runtime.GOMAXPROCS(0), runtime.GOMAXPROCS(0),
		time.Duration(c.lateness.queue.Load()).Round(time.Millisecond), time.Duration(c.lateness.timer.Load()).Round(time.Millisecond))
	stop.Store(true)
	wg.Wait()
	redistest.Eventually(t, 20*time.Second, "late by less than that", func() bool {
		c.stamp()
		return c.lateness.queue.Load() < int64(20*time.Millisecond)
	})
}

// A wait counts while it lasts.
func TestLateWhileItWaits(t *testing.T) {
	var l lateness
	l.queue.Store(int64(3 * tick))
	l.since.Store(int64(100 * tick))
	for _, tc := range []struct{ now, want int64 }{{101, 3}, {103, 3}, {140, 40}} {
		if got := l.late(tc.now*int64(tick), tc.now*int64(tick)); got != time.Duration(tc.want)*tick {
			t.Errorf("after %d ticks in the queue: late by %v, want %d ticks", tc.now-100, got, tc.want)
		}
	}
}
