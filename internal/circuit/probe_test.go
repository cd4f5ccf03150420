package circuit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
)

func TestProbe(t *testing.T) {
	for _, test := range []struct {
		name string
		took time.Duration
		err  error
		want breaker.State
	}{
		{"succeeds", 0, nil, breaker.Closed},
		{"finds nothing", 0, redis.Nil, breaker.Closed},
		{"fails", 0, errDown, breaker.Open},
		{"is slow", 101 * time.Millisecond, nil, breaker.Open},
		{"is ignored", 0, redis.ErrNoScript, breaker.HalfOpen},
		{"is cancelled", 0, context.Canceled, breaker.HalfOpen},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, breaker.Config{})
				open(t, b)
				halfOpen(t, b).End(test.took, test.err)
				want(t, b, test.want)
				switch test.want {
				case breaker.Closed:
					// The count restarts: two failures do not open it.
					call(t, b, errDown)
					call(t, b, errDown)
					want(t, b, breaker.Closed)
				case breaker.Open:
					refused(t, b)
				case breaker.HalfOpen:
					// The breaker is never stuck: the next call is the probe.
					for range 1000 {
						if b.RetryIn() != 0 {
							t.Fatalf("RetryIn = %v with no probe out", b.RetryIn())
						}
						c := begin(t, b)
						refused(t, b)
						c.End(0, test.err)
						want(t, b, breaker.HalfOpen)
					}
					call(t, b, nil)
					want(t, b, breaker.Closed)
				}
			})
		})
	}
}

// A probe without an End must not block the breaker for ever.
func TestLostProbe(t *testing.T) {
	for _, test := range []struct {
		name     string
		cfg      breaker.Config
		patience time.Duration
	}{
		{"ten slow calls", breaker.Config{}, time.Second},
		{"the open time", breaker.Config{OpenFor: 5 * time.Second}, 5 * time.Second},
		{"slow calls not counted", breaker.Config{SlowCall: -1}, 500 * time.Millisecond},
		{"and far below zero", breaker.Config{SlowCall: -1e18}, 500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, test.cfg)
				open(t, b)
				halfOpen(t, b) // without End
				for range 3 {  // like the next three probes
					if d := b.RetryIn(); d != test.patience {
						t.Fatalf("RetryIn = %v, want %v", d, test.patience)
					}
					time.Sleep(test.patience - 1)
					refused(t, b)
					time.Sleep(time.Nanosecond)
					if b.RetryIn() != 0 {
						t.Fatalf("RetryIn = %v", b.RetryIn())
					}
					begin(t, b)
					refused(t, b)
				}
				time.Sleep(test.patience)
				call(t, b, nil)
				want(t, b, breaker.Closed)
			})
		})
	}
}

// A lost probe may still end while another probe has replaced it.
func TestLostProbeThatEnds(t *testing.T) {
	lost := func(t *testing.T) (b *circuit.Breaker, first, second circuit.Call) {
		b = newBreaker(t, breaker.Config{SlowCall: -1})
		open(t, b)
		first = halfOpen(t, b)
		time.Sleep(b.RetryIn())
		return b, first, begin(t, b)
	}
	for _, test := range []struct {
		name string
		err  error
		want breaker.State
	}{
		{"failure is old news", errDown, breaker.HalfOpen},
		{"so is an ignored one", context.Canceled, breaker.HalfOpen},
		{"success closes", nil, breaker.Closed},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, first, second := lost(t)
				first.End(time.Second, test.err)
				want(t, b, test.want)
				if test.want == breaker.HalfOpen {
					refused(t, b) // the second still has the only place
					second.End(0, nil)
					want(t, b, breaker.Closed)
					return
				}
				for range 10 {
					second.End(0, errDown) // dropped: another generation
				}
				want(t, b, breaker.Closed)
			})
		})
	}
	// If slow calls are not counted, a healthy Redis may always take longer than
	// patience. If late successes were dropped, each probe would be replaced
	// before its End, and the breaker would never close.
	t.Run("a slow Redis closes it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(t, breaker.Config{SlowCall: -1, OpenFor: 100 * time.Millisecond})
			open(t, b)
			for b.State() != breaker.Closed {
				if c, ok := b.Begin(); ok {
					go func() { time.Sleep(time.Second); c.End(time.Second, nil) }()
				}
				time.Sleep(10 * time.Millisecond)
				if time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) > 5*time.Second {
					t.Fatal("still not closed")
				}
			}
			time.Sleep(2 * time.Second) // the other probes end
			want(t, b, breaker.Closed)
		})
	})
}

// A call that began before a change of state has no effect after it.
func TestCallsOfAnotherGeneration(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
	}{{"success", nil}, {"failure", errDown}, {"ignored", redis.ErrNoScript}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes int
				b := newBreaker(t, breaker.Config{OnChange: func(breaker.Change) { changes++ }})
				old := make([]circuit.Call, 40)
				for i := range old {
					old[i] = begin(t, b)
				}
				late := func(n int) {
					t.Helper()
					before, state := changes, b.State()
					for _, c := range old[:n] {
						c.End(0, test.err)
					}
					old = old[n:]
					if changes != before || b.State() != state {
						t.Fatalf("late results turned %v into %v", state, b.State())
					}
				}
				open(t, b)
				retry := b.RetryIn()
				late(10) // while open
				if b.RetryIn() != retry {
					t.Errorf("late results moved the probe from %v to %v", retry, b.RetryIn())
				}
				time.Sleep(retry)
				late(10) // open, and the open time is over: gobreaker alone would become half-open
				probe := halfOpen(t, b)
				late(10) // half-open: no result of the probe, and no second probe
				refused(t, b)
				probe.End(0, nil)
				call(t, b, errDown)
				call(t, b, errDown)
				late(10) // closed again: not a third failure, and not a success that ends the row
				call(t, b, errDown)
				want(t, b, breaker.Open)
			})
		})
	}
}

func TestZeroCall(t *testing.T) {
	circuit.Call{}.End(time.Hour, errors.New("of nobody"))
}
