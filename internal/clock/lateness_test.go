package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// A process that waits for a core during an exchange measures the wait, and remembers it for about a second, while there are
// exchanges. A process that does not wait is never late.
func TestLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		defer c.Close()
		if c.Late() != 0 {
			t.Errorf("%v late at first", c.Late())
		}
		c.Begin()
		time.Sleep(20 * Tick)
		synctest.Wait()
		if c.Late() != 0 {
			t.Errorf("%v late though every tick came in time", c.Late())
		}
		held := 25 * Tick
		c.lateness.timer.Store(int64(held)) // as if the ticker had been held
		for range 100 {
			time.Sleep(Tick)
		}
		if got := c.Late(); got < held/2 || got > held {
			t.Errorf("%v late half a second later, before %v", got, held)
		}
		for range 1000 {
			time.Sleep(Tick)
		}
		if got := c.Late(); got > Tick {
			t.Errorf("%v late five seconds later", got)
		}
		c.End()
		time.Sleep(2 * Tick)
		synctest.Wait()
		if c.epoch.Load() > 0 || c.Late() != 0 {
			t.Errorf("%v late with no ticker", c.Late())
		}
	})
}

// The timer of an exchange that has not fired yet is late too.
func TestLateBeforeTheTicker(t *testing.T) {
	c := New(nil)
	defer c.Close()
	c.Begin()
	defer c.End()
	for _, tc := range []struct{ after, want time.Duration }{{0, 0}, {Tick, 0}, {20 * Tick, 19 * Tick}} {
		if got := c.watch.late(c.watch.began + int64(tc.after)); got != tc.want {
			t.Errorf("%v after the begin: late by %v, want %v", tc.after, got, tc.want)
		}
	}
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

// A tick that has not come counts too.
func TestLateWithoutATick(t *testing.T) {
	var l lateness
	for _, tc := range []struct{ since, want time.Duration }{{0, 0}, {Tick, 0}, {26 * Tick, 25 * Tick}} {
		if got := l.late(int64(time.Hour+tc.since), int64(time.Hour)); got != tc.want {
			t.Errorf("%v after a tick: late by %v, want %v", tc.since, got, tc.want)
		}
	}
}
