package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/account"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// A word is good from the epoch that it was stamped with to its last, however
// the epochs come round, and in no other for half of them.
func TestAWordIsGoodUntilItsEpoch(t *testing.T) {
	const round = 1 << account.EpochBits
	for _, at := range []uint64{1, 1000, round - 3, round - 1, round, 5*round - 2, math.MaxUint64 - 1} {
		for _, ticks := range []uint64{0, 1, wordTicks} {
			w := account.Budget{Kind: account.LeaseBudget, Units: account.MaxUnits}.Pack(at + ticks)
			for _, tc := range []struct {
				later uint64
				past  bool
			}{{0, false}, {ticks, false}, {ticks + 1, true}, {ticks + round/2, true}, {ticks + round/2 + 1, false}} {
				if got := account.Over(w, at+tc.later); got != tc.past {
					t.Errorf("of epoch %d for %d, in epoch %d: past %t", at, ticks, at+tc.later, got)
				}
			}
			if account.UnitsOf(w) != account.MaxUnits || account.KindOf(w) != account.LeaseBudget {
				t.Errorf("%x: %d units of kind %d", w, account.UnitsOf(w), account.KindOf(w))
			}
		}
	}
}

// However the epochs and the time lie, and whatever ticks are dropped: a word
// is past at the first tick that comes a tick or more after its end, and good at
// any that comes before.
func TestAWordDiesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		c := newClock()
		defer c.close()
		for range 300 {
			time.Sleep(time.Duration(rng.Int64N(int64(3 * tick))))
			synctest.Wait()
			epoch, now := c.stamp()
			until := now + rng.Int64N(200*int64(tick))
			w := account.Budget{Kind: account.LeaseBudget, Units: 1}.Pack(goodUntil(epoch, now, until))
			if account.Over(w, c.epoch.Load()) {
				t.Fatalf("past at once, %d ns before its end", until-now)
			}
			if rest := until - now - int64(tick); rest > 0 {
				time.Sleep(time.Duration(rest))
				synctest.Wait()
				if account.Over(w, c.epoch.Load()) {
					t.Fatalf("past a tick before its end, %d ns after it was stamped", rest)
				}
			}
			time.Sleep(time.Duration(until - c.now() + int64(tick)))
			synctest.Wait()
			if !account.Over(w, c.epoch.Load()) {
				t.Fatalf("good %d ns after its end, of %d", c.now()-until, until-now)
			}
		}
	})
}

// A process that did not run drops ticks; words end by the time all the same.
func TestDroppedTicksCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		defer c.close()
		held := make(chan struct{})
		epoch, now := c.stamp()
		synctest.Wait() // the ticker runs
		w := account.Budget{Kind: account.LeaseBudget, Units: 1}.Pack(goodUntil(epoch, now, now+20*int64(tick)))
		c.aged = func() { <-held } // holds the ticker's goroutine
		c.epoch.Add(1 << (account.EpochBits - 2))
		time.Sleep(2 * tick)
		synctest.Wait()
		c.epoch.Add(^uint64(1<<(account.EpochBits-2) - 1))
		before := c.epoch.Load()
		time.Sleep(100 * tick)
		if synctest.Wait(); c.epoch.Load() != before || account.Over(w, before) {
			t.Fatalf("epoch %d, before %d: the ticker was not held", c.epoch.Load(), before)
		}
		close(held)
		time.Sleep(2 * tick)
		synctest.Wait()
		if got := c.epoch.Load() - before; got < 100 || got > 103 {
			t.Errorf("%d epochs in 102 ticks of which 100 were dropped", got)
		}
		if !account.Over(w, c.epoch.Load()) {
			t.Error("the word is still good")
		}
	})
}

func TestWhatEndsWords(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(c *clock)
	}{
		{"void", (*clock).void},
		{"close", (*clock).close},
		{"nobody on the slow path", func(c *clock) { time.Sleep((idleTicks + 2) * tick) }},
		{"their time", func(c *clock) {
			c.ends.Store(c.now() + 3*int64(tick))
			time.Sleep(5 * tick)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				defer c.close()
				epoch, now := c.stamp()
				w := account.Budget{Kind: account.CreditBudget, Units: 1}.Pack(goodUntil(epoch, now, math.MaxInt64/2))
				time.Sleep(2 * tick)
				if synctest.Wait(); account.Over(w, c.epoch.Load()) {
					t.Fatal("past before anything happened")
				}
				tc.do(c)
				if synctest.Wait(); !account.Over(w, c.epoch.Load()) {
					t.Error("still good")
				}
				if c.ends.Load() != math.MaxInt64 {
					t.Error("all words end again")
				}
			})
		})
	}
}

// Words that lie for years are taken back before they come to be good again.
func TestOldWordsAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		defer c.close()
		times := 0
		c.aged = func() { times++ }
		for range 8 {
			c.stamp()
			time.Sleep(3 * tick)
			c.epoch.Add(1 << (account.EpochBits - 3))
		}
		time.Sleep(3 * tick)
		if synctest.Wait(); times != 4 {
			t.Errorf("%d times while twice the quarter passed four times, want 4", times)
		}
	})
}
