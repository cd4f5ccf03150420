package circuit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
)

// The tests below check each rule that opens a closed breaker, alone.

func TestOpensByConsecutiveFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{FailureRatio: noRatio})
		for range 10 { // two in a row, over and over
			call(t, b, errDown)
			call(t, b, errDown)
			call(t, b, redis.Nil)
		}
		call(t, b, errDown)
		call(t, b, redis.ErrNoScript) // neither ends the row nor adds to it
		call(t, b, context.Canceled)
		call(t, b, errDown)
		want(t, b, breaker.Closed)
		if b.RetryIn() != 0 {
			t.Errorf("RetryIn = %v while closed", b.RetryIn())
		}
		call(t, b, errDown)
		want(t, b, breaker.Open)
		refused(t, b)
	})
}

// gobreaker drops failures older than its window. With that count, the breaker of a
// process that seldom calls Redis would never open.
func TestConsecutiveFailuresMayBeFarApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Window: time.Second, FailureRatio: noRatio})
		for range 3 {
			want(t, b, breaker.Closed)
			call(t, b, errDown)
			time.Sleep(time.Hour)
		}
		want(t, b, breaker.Open)
	})
}

func TestOpensByRatio(t *testing.T) {
	for _, test := range []struct {
		name   string
		cfg    breaker.Config
		calls  string // F failed, S succeeded, I ignored
		opened bool
	}{
		{"half of 20", breaker.Config{}, "SFSFSFSFSFSFSFSFSFSF", true},
		{"half of 19", breaker.Config{}, "FSFSFSFSFSFSFSFSFSF", false},
		{"a third", breaker.Config{}, "SSFSSFSSFSSFSSFSSFSSFSSF", false},
		{"a third, asked for a third", breaker.Config{FailureRatio: 0.33}, "SSFSSFSSFSSFSSFSSFSSF", true},
		{"ignored calls do not thin it out", breaker.Config{}, "SIIFSIFISIFISFIISFSFSFSFSFSF", true},
		{"ignored calls do not fill it up", breaker.Config{}, "SFIIIIIIIIIIIIIIIIIISFSF", false},
		{"few calls, asked for few", breaker.Config{MinCalls: 4}, "SFSF", true},
		{"all of one", breaker.Config{MinCalls: 1, FailureRatio: 1, Failures: 100}, "F", true},
		{"never by ratio", breaker.Config{FailureRatio: noRatio, MinCalls: 1}, "FFSFFSFFSFFSFFSFFSFFSFFSFFSFFS", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, test.cfg)
				for i, c := range test.calls {
					if b.State() != breaker.Closed {
						t.Fatalf("opened before call %d", i)
					}
					call(t, b, map[rune]error{'F': errDown, 'I': redis.ErrNoScript}[c])
				}
				if opened := b.State() == breaker.Open; opened != test.opened {
					t.Errorf("opened = %v, want %v", opened, test.opened)
				}
			})
		})
	}
}

// The ratio covers the calls begun in the last Window. The window slides: it does not
// restart empty every Window.
func TestRatioLooksBackOneWindow(t *testing.T) {
	mixed := func(t *testing.T, b *circuit.Breaker, n int) {
		for range n {
			call(t, b, nil)
			if b.State() == breaker.Closed {
				call(t, b, errDown)
			}
		}
	}
	for _, test := range []struct {
		name   string
		pause  time.Duration
		opened bool
	}{
		{"within", 8900 * time.Millisecond, true},
		{"across the end of a fixed window", 200 * time.Millisecond, true},
		{"beyond", 10001 * time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, breaker.Config{})
				time.Sleep(9900 * time.Millisecond)
				mixed(t, b, 9) // 18 calls, 9 failed
				want(t, b, breaker.Closed)
				time.Sleep(test.pause)
				mixed(t, b, 1)
				if opened := b.State() == breaker.Open; opened != test.opened {
					t.Errorf("opened = %v, want %v", opened, test.opened)
				}
			})
		})
	}
}

// A hanging Redis keeps calls in flight. They must not reduce the ratio of failed calls.
func TestRatioCountsEndedCallsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{MinCalls: 4})
		for range 100 {
			begin(t, b)
		}
		call(t, b, nil)
		call(t, b, errDown)
		call(t, b, nil)
		want(t, b, breaker.Closed)
		call(t, b, errDown)
		want(t, b, breaker.Open)
	})
}

func TestOpensBySlowCalls(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, test := range []struct {
		name   string
		cfg    breaker.Config
		took   time.Duration
		err    error
		opened bool
		cause  error
	}{
		{"in time", breaker.Config{}, limit, nil, false, nil},
		{"slow", breaker.Config{}, limit + 1, nil, true, breaker.ErrSlow},
		{"slow to find nothing", breaker.Config{}, limit + 1, redis.Nil, true, breaker.ErrSlow},
		{"slow to want the script", breaker.Config{}, limit + 1, redis.ErrNoScript, true, breaker.ErrSlow},
		{"caller gave up soon", breaker.Config{}, limit, context.Canceled, false, nil},
		{"caller gave up after more than SlowCall", breaker.Config{}, limit + 1, context.Canceled, true, breaker.ErrSlow},
		{"slow to fail: the error is the cause", breaker.Config{}, limit + 1, errDown, true, errDown},
		{"fast to fail", breaker.Config{}, 0, errDown, true, errDown},
		{"own limit", breaker.Config{SlowCall: time.Second}, time.Second, nil, false, nil},
		{"not counted", breaker.Config{SlowCall: -1}, time.Hour, nil, false, nil},
		{"a clock that stepped back", breaker.Config{}, -time.Hour, nil, false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cause error
				test.cfg.OnChange = func(c breaker.Change) { cause = c.Cause }
				b := newBreaker(t, test.cfg)
				for range 3 {
					begin(t, b).End(test.took, test.err)
				}
				if opened := b.State() == breaker.Open; opened != test.opened {
					t.Fatalf("opened = %v, want %v", opened, test.opened)
				}
				if !errors.Is(cause, test.cause) {
					t.Errorf("cause = %v, want %v", cause, test.cause)
				}
				if cause != nil && test.cause == breaker.ErrSlow {
					if got, want := cause.Error(), fmt.Sprintf("breaker: slow call: took %v, SlowCall is 100ms", test.took); got != want {
						t.Errorf("cause = %q, want %q", got, want)
					}
				}
			})
		})
	}
}

func TestOpenTimeIsJittered(t *testing.T) {
	const mean = 400 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var sum time.Duration
		seen := map[time.Duration]bool{}
		const breakers, openings = 50, 20
		for range breakers {
			b := newBreaker(t, breaker.Config{OpenFor: mean})
			open(t, b)
			for range openings {
				d := b.RetryIn()
				if d < mean/2 || d >= mean*3/2 {
					t.Fatalf("open for %v, want [%v, %v)", d, mean/2, mean*3/2)
				}
				seen[d] = true
				sum += d
				halfOpen(t, b).End(0, errDown) // and open again, for a new time
				want(t, b, breaker.Open)
			}
		}
		// 1000 draws of 4·10⁸ values: two equal ones have a probability of 1/800.
		if len(seen) < breakers*openings-3 {
			t.Errorf("%d different open times in %d openings", len(seen), breakers*openings)
		}
		// Standard error of the mean: 400/√12/√1000 = 3.7 ms; allow 5 of them.
		if avg := sum / (breakers * openings); (avg - mean).Abs() > 18*time.Millisecond {
			t.Errorf("mean open time %v, want about %v", avg, mean)
		}
	})
}

// The ends of the jitter's range are exact to the nanosecond, on gobreaker's clock and on
// the breaker's.
func TestOpenTimeIsExact(t *testing.T) {
	for _, test := range []struct {
		name   string
		random func(int64) int64
		want   time.Duration
	}{
		{"shortest", func(int64) int64 { return 0 }, 250 * time.Millisecond},
		{"longest", func(n int64) int64 { return n - 1 }, 750*time.Millisecond - 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var drawn time.Duration
				b := newBreaker(t, breaker.Config{OnChange: func(c breaker.Change) { drawn = c.OpenFor }})
				b.SetRandom(test.random)
				open(t, b)
				if b.RetryIn() != test.want || drawn != test.want {
					t.Fatalf("RetryIn = %v, Change.OpenFor = %v, want %v", b.RetryIn(), drawn, test.want)
				}
				time.Sleep(test.want - 1)
				refused(t, b)
				want(t, b, breaker.Open)
				time.Sleep(time.Nanosecond)
				if b.RetryIn() != 0 {
					t.Errorf("RetryIn = %v", b.RetryIn())
				}
				begin(t, b)
			})
		})
	}
}

// Time alone changes no state: an open breaker needs a Begin.
func TestOpenUntilSomebodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{})
		open(t, b)
		time.Sleep(time.Hour)
		want(t, b, breaker.Open)
		if b.RetryIn() != 0 {
			t.Errorf("RetryIn = %v", b.RetryIn())
		}
		begin(t, b)
		want(t, b, breaker.HalfOpen)
	})
}
