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
			if past(w, c.Epoch()) {
				t.Fatalf("past at once, %d ns before its end", until-now)
			}
			if rest := until - now - int64(Tick); rest > 0 {
				time.Sleep(time.Duration(rest))
				synctest.Wait()
				if past(w, c.Epoch()) {
					t.Fatalf("past a tick before its end, %d ns after it was stamped", rest)
				}
			}
			time.Sleep(time.Duration(until - c.Now() + int64(Tick)))
			synctest.Wait()
			if !past(w, c.Epoch()) {
				t.Fatalf("good %d ns after its end, of %d", c.Now()-until, until-now)
			}
		}
	})
}

// busy makes the ticker run, as many calls at once do.
func busy(c *Clock) {
	for range 2 * busyCalls {
		c.Epoch()
	}
}

// Words end by the time, and live as long with a ticker as without, when it starts or ends meanwhile, and when it drops ticks.
func TestAWordOutlivesTheTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		c := New(nil)
		defer c.Close()
		var ran, rested int
		for range 300 {
			time.Sleep(time.Duration(rng.Int64N(int64(tickFor))))
			if rng.IntN(2) == 0 {
				busy(c)
			}
			epoch, now := c.Stamp()
			until := now + rng.Int64N(400*int64(Tick))
			w := word(GoodUntil(epoch, now, until))
			for c.Now() < until+2*int64(Tick) {
				time.Sleep(time.Duration(rng.Int64N(int64(Tick))))
				switch rng.IntN(100) {
				case 0:
					busy(c)
				case 1: // the ticker is late
					time.Sleep(3 * Tick)
				}
				synctest.Wait()
				at := c.Now()
				if c.epoch.Load() > 0 {
					ran++
				} else {
					rested++
				}
				if is := past(w, c.Epoch()); is && at < until-int64(Tick) || !is && at >= until+int64(Tick) {
					t.Fatalf("past: %t, %d ns after its end, of %d", is, at-until, until-now)
				}
			}
		}
		if ran < 1000 || rested < 1000 {
			t.Errorf("%d looks with a ticker, %d without", ran, rested)
		}
	})
}

// A ticker runs only while there are many calls, or an exchange takes longer than a tick.
func TestWhenTheTickerRuns(t *testing.T) {
	for _, tc := range []struct {
		name  string
		calls int           // a second
		takes time.Duration // of an exchange
		runs  bool
	}{
		{"few calls", 500, 0, false},
		{"fewer than a ticker costs", 6000, 0, false},
		{"many calls", 7000, 0, true},
		{"quick exchanges", 0, Tick - time.Millisecond, false},
		{"slow exchanges", 0, 2 * Tick, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(nil)
				defer c.Close()
				ticking := 0
				for range 3000 {
					if tc.calls > 0 {
						c.Epoch()
						time.Sleep(time.Second / time.Duration(tc.calls))
					} else {
						c.Begin()
						time.Sleep(tc.takes)
						c.End()
					}
					if synctest.Wait(); c.epoch.Load() > 0 {
						ticking++
					}
				}
				if got := ticking > 0; got != tc.runs {
					t.Errorf("the ticker ran at %d of 3000 looks", ticking)
				}
				time.Sleep(tickFor + Tick)
				if synctest.Wait(); c.epoch.Load() > 0 {
					t.Error("the ticker runs without need")
				}
			})
		})
	}
}

func TestWhatEndsWords(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(c *Clock)
	}{
		{"void", (*Clock).Void},
		{"close", (*Clock).Close},
		{"Span", func(c *Clock) { time.Sleep((Span + 2) * Tick) }},
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
				if synctest.Wait(); past(w, c.Epoch()) {
					t.Fatal("past before anything happened")
				}
				tc.do(c)
				if synctest.Wait(); !past(w, c.Epoch()) {
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
			c.Age()
			c.added.Add(1 << (EpochBits - 3))
			c.Age()
		}
		if times != 4 {
			t.Errorf("words were taken back %d times in four quarters of the epochs, want 4", times)
		}
	})
}
