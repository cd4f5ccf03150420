package clock

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

const shift = 64 - EpochBits

// word keeps the bits of an epoch that a word of the fast path keeps.
func word(until uint64) uint64 { return until << shift }

// past compares as the fast path does.
func past(w, epoch uint64) bool { return int64(w-epoch<<shift) < 0 }

// A word is past at the first tick that comes a tick or more after its end, and valid at any tick before its end.
// This holds for every offset between epochs and time, and for every dropped tick.
func TestAWordDiesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		c := New(nil)
		defer c.Close()
		for range 300 {
			time.Sleep(time.Duration(rng.Int64N(int64(3 * Tick))))
			synctest.Wait()
			epoch, now := c.Stamp()
			until := now + rng.Int64N(200*int64(Tick))
			w := word(GoodUntil(epoch, now, until))
			if past(w, c.epoch.Load()) {
				t.Fatalf("past at once, %d ns before its end", until-now)
			}
			if rest := until - now - int64(Tick); rest > 0 {
				time.Sleep(time.Duration(rest))
				synctest.Wait()
				if past(w, c.epoch.Load()) {
					t.Fatalf("past a tick before its end, %d ns after it was stamped", rest)
				}
			}
			time.Sleep(time.Duration(until - c.Now() + int64(Tick)))
			synctest.Wait()
			if !past(w, c.epoch.Load()) {
				t.Fatalf("good %d ns after its end, of %d", c.Now()-until, until-now)
			}
		}
	})
}

// A process that did not run drops ticks. Words still end by the time.
func TestDroppedTicksCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		defer c.Close()
		held := make(chan struct{})
		epoch, now := c.Stamp()
		synctest.Wait() // the ticker runs
		w := word(GoodUntil(epoch, now, now+20*int64(Tick)))
		c.aged = func() { <-held } // holds the ticker's goroutine
		c.epoch.Add(1 << (EpochBits - 2))
		time.Sleep(2 * Tick)
		synctest.Wait()
		c.epoch.Add(^uint64(1<<(EpochBits-2) - 1))
		before := c.epoch.Load()
		time.Sleep(100 * Tick)
		if synctest.Wait(); c.epoch.Load() != before || past(w, before) {
			t.Fatalf("epoch %d, before %d: the ticker was not held", c.epoch.Load(), before)
		}
		close(held)
		time.Sleep(2 * Tick)
		synctest.Wait()
		if got := c.epoch.Load() - before; got < 100 || got > 103 {
			t.Errorf("%d epochs in 102 ticks of which 100 were dropped", got)
		}
		if !past(w, c.epoch.Load()) {
			t.Error("the word is still good")
		}
	})
}

func TestWhatEndsWords(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(c *Clock)
	}{
		{"void", (*Clock).Void},
		{"close", (*Clock).Close},
		{"nobody on the slow path", func(c *Clock) { time.Sleep((idleTicks + 2) * Tick) }},
		{"their time", func(c *Clock) {
			c.ends.Store(c.Now() + 3*int64(Tick))
			time.Sleep(5 * Tick)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(nil)
				defer c.Close()
				epoch, now := c.Stamp()
				w := word(GoodUntil(epoch, now, math.MaxInt64/2))
				time.Sleep(2 * Tick)
				if synctest.Wait(); past(w, c.epoch.Load()) {
					t.Fatal("past before anything happened")
				}
				tc.do(c)
				if synctest.Wait(); !past(w, c.epoch.Load()) {
					t.Error("still good")
				}
				if c.ends.Load() != math.MaxInt64 {
					t.Error("all words end again")
				}
			})
		})
	}
}

// Words that are not used for years are taken back before their epochs would be valid again.
func TestOldWordsAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		defer c.Close()
		times := 0
		c.aged = func() { times++ }
		for range 8 {
			c.Stamp()
			time.Sleep(3 * Tick)
			c.epoch.Add(1 << (EpochBits - 3))
		}
		time.Sleep(3 * Tick)
		if synctest.Wait(); times != 4 {
			t.Errorf("words were taken back %d times in four quarters of the epochs, want 4", times)
		}
	})
}
