package breaker_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
)

func TestForceOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{})
		before := begin(t, b)
		b.Switch(breaker.ModeForceOpen)
		want(t, b, breaker.Open)
		for range 3 {
			refused(t, b)
			if b.RetryIn() != hybridlimit.Never {
				t.Errorf("RetryIn = %v", b.RetryIn())
			}
			time.Sleep(time.Hour)
		}
		before.End(0, nil)
		want(t, b, breaker.Open)

		b.Switch(breaker.ModeAuto) // nobody knows how Redis is: a probe finds out
		want(t, b, breaker.Open)
		probe := halfOpen(t, b)
		refused(t, b)
		probe.End(0, nil)
		want(t, b, breaker.Closed)
	})
}

// There and back within one reading of the clock, where gobreaker wants its
// open time to be strictly over.
func TestForceOpenAndBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{OpenFor: time.Hour})
		b.Switch(breaker.ModeForceOpen)
		b.Switch(breaker.ModeAuto)
		if d := b.RetryIn(); d > 2*time.Nanosecond {
			t.Fatalf("RetryIn = %v", d)
		}
		halfOpen(t, b).End(0, errDown)
		want(t, b, breaker.Open)
		if b.RetryIn() < time.Hour/2 {
			t.Errorf("RetryIn = %v after a failed probe", b.RetryIn())
		}
	})
}

func TestForceClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{})
		b.Switch(breaker.ModeForceClosed)
		for range 100 {
			call(t, b, errDown)
			want(t, b, breaker.Closed)
		}
		b.Switch(breaker.ModeAuto)
		want(t, b, breaker.Closed)
		call(t, b, errDown) // counted all along
		want(t, b, breaker.Open)
	})
}

func TestForceClosedFromElsewhere(t *testing.T) {
	for _, from := range []breaker.State{breaker.Closed, breaker.HalfOpen, breaker.Open} {
		t.Run(from.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, breaker.Config{})
				call(t, b, errDown)
				call(t, b, errDown)
				var probe breaker.Call
				if from != breaker.Closed {
					call(t, b, errDown)
				}
				if from == breaker.HalfOpen {
					probe = halfOpen(t, b)
				}
				want(t, b, from)
				b.Switch(breaker.ModeForceClosed)
				want(t, b, breaker.Closed)
				if b.RetryIn() != 0 {
					t.Errorf("RetryIn = %v", b.RetryIn())
				}
				probe.End(0, errDown) // of another generation
				b.Switch(breaker.ModeAuto)
				// A breaker that was closed all along remembers its two
				// failures; one that had opened has used its up.
				call(t, b, errDown)
				if from == breaker.Closed {
					want(t, b, breaker.Open)
				} else {
					want(t, b, breaker.Closed)
				}
			})
		})
	}
}

// A reader must not see a state in passing: State is asked without a lock.
func TestForceOpenIsNeverClosedInPassing(t *testing.T) {
	b := newBreaker(t, breaker.Config{OpenFor: time.Hour})
	open(t, b)
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !done.Load() {
			if s := b.State(); s != breaker.Open {
				t.Errorf("State = %v in passing", s)
				return
			}
		}
	})
	for range 2000 {
		b.Switch(breaker.ModeForceOpen)
		b.Switch(breaker.ModeAuto)
	}
	done.Store(true)
	wg.Wait()
}

func TestSwitchTellsEachChangeOfMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []breaker.Change
		b := newBreaker(t, breaker.Config{OnChange: func(c breaker.Change) { got = append(got, c) }})
		for _, m := range []breaker.Mode{
			breaker.ModeAuto, // as it was: no change
			breaker.ModeForceClosed,
			breaker.ModeForceOpen,
			breaker.ModeForceOpen, // no change
			breaker.ModeAuto,
			breaker.ModeForceOpen,
			breaker.ModeForceClosed,
		} {
			b.Switch(m)
		}
		const c, o = breaker.Closed, breaker.Open
		now := time.Now()
		want := []breaker.Change{
			{c, c, breaker.ModeForceClosed, breaker.ErrSwitched, now, 0},
			{c, o, breaker.ModeForceOpen, breaker.ErrSwitched, now, 0},
			{o, o, breaker.ModeAuto, breaker.ErrSwitched, now, 0},
			{o, o, breaker.ModeForceOpen, breaker.ErrSwitched, now, 0},
			{o, c, breaker.ModeForceClosed, breaker.ErrSwitched, now, 0},
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %v\nwant %v", got, want)
		}
	})
}

func TestSwitchToNoMode(t *testing.T) {
	b := newBreaker(t, breaker.Config{})
	defer func() {
		if r := recover(); r != "breaker: Switch to Mode(3)" {
			t.Errorf("recovered %v", r)
		}
		call(t, b, nil) // and the lock is free
	}()
	b.Switch(3)
}
