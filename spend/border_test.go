package spend_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/spend"
)

const (
	window  = 10 * time.Second
	windows = 7                       // of a schedule
	busy    = 4000                    // ms: the part of a window that has most events
	look    = 7500 * time.Millisecond // a quarter of the window before counts
)

// step is one event of a call.
type step struct {
	at    time.Duration // since the start of the first window
	total int64         // of Use
}

// in returns the number of the step's window.
func (s step) in() int { return int(s.at / window) }

// call begins with its first step, tells of totals, and ends with its last step.
type call struct {
	estimate int64
	steps    []step
	end      ending
}

// TestEachWindowCountsItsOwn draws calls that last over the borders of windows. A window counts the estimates of the
// calls that began in it, and the units beyond an estimate that were told in it. What a call does not use returns to
// the window of its estimate, and to no other. Leases end in the window in which they were taken.
func TestEachWindowCountsItsOwn(t *testing.T) {
	for of, limit := range map[string]hybridlimit.Limit{
		"fixed window":   hybridlimit.FixedWindow(burst, window),
		"sliding window": hybridlimit.SlidingWindow(burst, window),
		"sliding log":    hybridlimit.SlidingLog(burst, window), // at a look, its units are those of the window
	} {
		for name, make := range worlds {
			// A lease that is taken just before a border ends after it, and no counter has its window.
			close := limit.Algorithm != hybridlimit.AlgSlidingLog && name != "hybrid auto" && name != "hybrid strict"
			t.Run(name+" "+of, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(seeds) {
					synctest.Test(t, func(t *testing.T) {
						borders(t, make(t, limit), limit.Algorithm, close, seed)
					})
				}
			})
		}
	}
}

// borders runs one schedule of calls over several windows.
func borders(t *testing.T, w world, algorithm hybridlimit.Algorithm, close bool, seed uint64) {
	time.Sleep(window - time.Duration(time.Now().UnixNano())%window)
	start := time.Now()
	rng := rand.New(rand.NewPCG(seed, 2))
	sliding := algorithm == hybridlimit.AlgSlidingWindow
	var calls sync.WaitGroup
	drawn := make([]call, 30)
	for i := range drawn {
		drawn[i] = drawCall(rng, time.Duration(i)*time.Microsecond, close)
		calls.Go(func() { drawn[i].play(t, w.limiter, start) })
	}
	var mine, held, leases int64 // of the last look: leases of its window, leased units in hand, and unspent ones
	for at := range windows {
		time.Sleep(time.Until(start.Add(time.Duration(at)*window + look)))
		was, late := leases, held
		held, leases = w.unspent()
		until := time.Duration(at)*window + look
		own, before := counted(drawn, at, until, sliding)+leases-was, counted(drawn, at-1, until, sliding)+mine
		used, v := w.used(), int64(0)
		// v units of the leases that were in hand at the last look came back after the border.
		for v <= late && used != own+v+part(before-v, sliding) {
			v++
		}
		if v > late {
			t.Errorf("seed %d: window %d: %d units are used, want %d and, of the window before, %d", seed, at, used, own, part(before, sliding))
		}
		mine = leases - was + v
	}
	calls.Wait()
}

// part returns how many units of the window before count at a look, rounded up.
func part(units int64, sliding bool) int64 {
	if !sliding {
		return 0
	}
	return (units + 3) / 4
}

// drawCall returns a call that begins in one of the first three windows and lasts for up to four. close: some of its
// steps are within 300 ms of a border.
func drawCall(rng *rand.Rand, tick time.Duration, close bool) call {
	c := call{estimate: 4 * (1 + rng.Int64N(20)), end: ending(rng.IntN(int(endings)))}
	at := time.Duration(rng.IntN(3)) * window
	for range 2 + rng.IntN(3) {
		next := at.Truncate(window) + tick
		switch near := time.Duration(15+rng.IntN(285)) * time.Millisecond; {
		case close && rng.IntN(4) == 0:
			next += window - near
		case close && rng.IntN(3) == 0:
			next += near
		default:
			next += time.Duration(rng.IntN(busy)) * time.Millisecond
		}
		at = max(at+time.Millisecond, next)
		c.steps = append(c.steps, step{at, 4 * rng.Int64N(30)})
		if rng.IntN(2) == 0 {
			at = at.Truncate(window) + window
		}
	}
	return c
}

// play makes the call.
func (c *call) play(t *testing.T, l hybridlimit.Limiter, start time.Time) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.Sleep(time.Until(start.Add(c.steps[0].at)))
	s, res, err := spend.Begin(ctx, hybridlimit.Ask{Limiter: l, Key: "k", N: c.estimate})
	if err != nil || !res.Allowed {
		t.Errorf("Begin of %d: %+v, %v", c.estimate, res, err)
		return
	}
	c.end.run(ctx, t, s, cancel, func() {
		for i, step := range c.steps[1:] {
			time.Sleep(time.Until(start.Add(step.at)))
			if i == len(c.steps)-2 {
				return
			}
			if _, err := s.Use(ctx, 0, step.total); err != nil {
				t.Errorf("Use of %d: %v", step.total, err)
			}
		}
	})
}

// counted returns the units that window own has counted at a time, with those that came back. A sliding window takes
// units back while it is the one before.
func counted(calls []call, own int, until time.Duration, sliding bool) (sum int64) {
	in := func(s step) bool { return s.in() == own && s.at < until }
	for i := range calls {
		c := &calls[i]
		first, last, uses := c.steps[0], c.steps[len(c.steps)-1], c.steps[1:len(c.steps)-1]
		if in(first) {
			sum += c.estimate
		}
		told, most := int64(0), c.estimate
		for _, step := range uses {
			if in(step) {
				sum += max(0, step.total-most)
			}
			told, most = max(told, step.total), max(most, step.total)
		}
		back := last.in() == own || sliding && last.in() == own+1
		if len(uses) > 0 && c.end != never && first.in() == own && back && last.at < until {
			sum -= max(0, c.estimate-told)
		}
	}
	return sum
}

// TestUnitsGrantedBeforeTheBorder has a call whose answer is on its way while the window ends. Its units return to the
// window that has counted them, and the next one admits no more than its limit.
func TestUnitsGrantedBeforeTheBorder(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeStrict, hybrid.ModeExact} {
		synctest.Test(t, func(t *testing.T) {
			link := redistest.NewBubble(t).Link()
			l, err := hybrid.New(link.Client(nil), hybridlimit.FixedWindow(100, window), hybrid.Config{Name: "api", Mode: mode, MaxWait: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			time.Sleep(3 * time.Second)
			time.Sleep(window - time.Duration(time.Now().UnixNano())%window - 30*time.Millisecond)
			link.Latency(0, 60*time.Millisecond)
			s := begin(t, ask(l, 10))
			if late := time.Duration(time.Now().UnixNano()) % window; late > time.Second {
				t.Fatalf("%v: the answer came before the border", mode)
			}
			link.Latency(0, 0)
			drain := func() (admitted int64) {
				for range 110 {
					res, err := l.Allow(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					admitted += res.Granted
				}
				return admitted
			}
			first := drain()
			if _, err := s.Use(t.Context(), 0, 0); err != nil {
				t.Error(err)
			}
			if err := s.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if all := first + drain(); first < 90 || all > 100 {
				t.Errorf("%v: %d and in all %d admitted, want 100", mode, first, all)
			}
		})
	}
}

// TestUnitsOfAnEarlierWindowPayNoCharge gives units back just after a charge in a later window, of which Redis does not
// know yet. The charge stays.
func TestUnitsOfAnEarlierWindowPayNoCharge(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(100, window), hybridlimit.SlidingWindow(100, window)} {
		for name, make := range worlds {
			synctest.Test(t, func(t *testing.T) {
				w := make(t, limit)
				time.Sleep(window - time.Duration(time.Now().UnixNano())%window)
				old, other := begin(t, ask(w.limiter, 50)), begin(t, ask(w.limiter, 10))
				if _, err := old.Use(t.Context(), 0, 0); err != nil {
					t.Error(err)
				}
				time.Sleep(2*window + time.Second)
				if _, err := other.Use(t.Context(), 0, 38); err != nil {
					t.Error(err)
				}
				if err := old.Settle(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Second)
				if _, leases := w.unspent(); w.used() != 28 && w.used() != 28+leases {
					t.Errorf("%s, %v: %d units are used, want the 28 of the charge", name, limit, w.used())
				}
			})
		}
	}
}

// TestUnitsWithoutAView takes and charges units on credit, while the process has no view of the window. They count in
// the window of that time, at its very begin and until its end, and return to it.
func TestUnitsWithoutAView(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.FixedWindow(1000, window), hybridlimit.SlidingWindow(1000, window)} {
		for _, name := range []string{"hybrid auto", "hybrid deferred"} {
			for _, at := range []time.Duration{0, time.Millisecond, 8 * time.Millisecond, window - 20*time.Millisecond, window - time.Millisecond} {
				synctest.Test(t, func(t *testing.T) {
					w := worlds[name](t, limit)
					time.Sleep(window - time.Duration(time.Now().UnixNano())%window + at)
					s := begin(t, ask(w.limiter, 4))
					here := time.Duration(time.Now().UnixNano()) % window // it may have waited for Redis
					if here < at {                                        // the answer came after the border
						return
					}
					time.Sleep(window - here + look)
					if got, want := w.used(), part(4, limit.Algorithm == hybridlimit.AlgSlidingWindow); got != want {
						t.Errorf("%s, %v: %d of 4 units count in the window after that of Begin, want %d", name, limit, got, want)
					}
					time.Sleep(window - look + at)
					if _, err := s.Use(t.Context(), 0, 24); err != nil { // of the window before, there are none
						t.Error(err)
					}
					time.Sleep(window - at + look)
					_, leases := w.unspent()
					if got, want := w.used(), part(20, limit.Algorithm == hybridlimit.AlgSlidingWindow); got < want || got > want+leases {
						t.Errorf("%s, %v: %d of 20 units count in the window after that of Use at %v, want %d", name, limit, got, at, want)
					}
				})
			}
			synctest.Test(t, func(t *testing.T) {
				w := worlds[name](t, limit)
				time.Sleep(window - time.Duration(time.Now().UnixNano())%window)
				s := begin(t, ask(w.limiter, 4))
				if _, err := s.Use(t.Context(), 0, 0); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if err := s.Settle(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if got := w.used(); got != 0 {
					t.Errorf("%s, %v: %d units are used, want none: all came back", name, limit, got)
				}
			})
		}
	}
}

// TestUnitsOwedOfTwoWindows has units of a window that Redis has not heard of when the next window has a charge. Each
// window counts its own, and what comes back goes to the first one.
func TestUnitsOwedOfTwoWindows(t *testing.T) {
	limits := []hybridlimit.Limit{hybridlimit.FixedWindow(10_000, window), hybridlimit.SlidingWindow(10_000, window)}
	for _, limit := range limits {
		for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} { // the charge
			synctest.Test(t, func(t *testing.T) {
				w := worlds["hybrid deferred"](t, limit)
				time.Sleep(window - time.Duration(time.Now().UnixNano())%window)
				old := begin(t, ask(w.limiter, 10))
				time.Sleep(window - 15*time.Millisecond)
				s := begin(t, ask(w.limiter, 40))
				time.Sleep(15*time.Millisecond + after)
				if _, err := old.Use(t.Context(), 0, 50); err != nil {
					t.Error(err)
				}
				if _, err := s.Use(t.Context(), 0, 0); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if err := s.Settle(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(look - time.Second - after)
				if got, want := w.used(), 40+part(10, limit.Algorithm == hybridlimit.AlgSlidingWindow); got != want {
					t.Errorf("%v, a charge after %v: %d units are used, want %d", limit, after, got, want)
				}
			})
		}
	}
}
