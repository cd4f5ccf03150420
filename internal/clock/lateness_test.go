package clock

import (
	"testing"
	"testing/synctest"
	"time"
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
