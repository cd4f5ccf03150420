package spend_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// change gives a limiter another limit.
func change(t *testing.T, w world, limit hybridlimit.Limit) {
	l, ok := w.limiter.(interface{ SetLimit(hybridlimit.Limit) error })
	if !ok {
		t.Fatalf("%T has no SetLimit", w.limiter)
	}
	if err := l.SetLimit(limit); err != nil {
		t.Fatal(err)
	}
}

// drain takes all units that there are, one by one.
func drain(t *testing.T, w world) (admitted int64) {
	for range 130 {
		res, err := w.limiter.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		admitted += res.Granted
	}
	return admitted
}

// TestUnitsOfAnotherPeriod gives units back two windows later, to a limit that has a longer period since. The long
// window has the number of the short one, and has not counted the units.
func TestUnitsOfAnotherPeriod(t *testing.T) {
	for _, kind := range []func(int64, time.Duration) hybridlimit.Limit{hybridlimit.FixedWindow, hybridlimit.SlidingWindow} {
		for name, make := range worlds {
			for _, late := range []bool{false, true} { // settled after the change, or just before it
				synctest.Test(t, func(t *testing.T) {
					w := make(t, kind(100, window))
					time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
					s := begin(t, ask(w.limiter, 60))
					if _, err := s.Use(t.Context(), 0, 0); err != nil {
						t.Error(err)
					}
					time.Sleep(2*window + time.Second)
					settle := func() {
						if err := s.Settle(t.Context()); err != nil {
							t.Error(err)
						}
					}
					first := drain(t, w)
					if !late {
						settle()
					}
					change(t, w, kind(100, time.Minute))
					if late {
						settle()
					}
					time.Sleep(time.Second)
					if all := first + drain(t, w); all < 99 || all > 100 {
						t.Errorf("%s, %v, late %v: %d and then %d in one window, want 100 in all", name, kind(100, window).Algorithm, late, first, all-first)
					}
				})
			}
		}
	}
}
