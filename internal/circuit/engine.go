package circuit

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// The adapter to gobreaker. Everything here is called with b.mu held.
//
// gobreaker runs its callbacks under its own mutex, where calling it back
// deadlocks. Ours only compare and note; what follows from a note is done in
// settle, once gobreaker has returned, and OnChange is called by release, once
// b.mu is free as well.

// What gobreaker is told of a call. It never sees the call's own error: that
// one is classified before any lock is taken, since its methods are not ours.
var (
	errFailed  = errors.New("failed")
	errIgnored = errors.New("ignored")
)

// windowSteps is how finely the window of FailureRatio moves. gobreaker's
// default, a window that starts anew from nothing, would drop the result of
// each call that spans the turn and see half of a burst of failures that does.
const windowSteps = 10

func (b *Breaker) settings() gobreaker.Settings {
	return gobreaker.Settings{
		MaxRequests:  1, // probes at a time, and successes that close
		Interval:     b.cfg.Window,
		BucketPeriod: b.cfg.Window / windowSteps,

		// gobreaker's open time is fixed when it is made; ours is drawn for
		// each opening, and Begin holds the gate until retryAt. So the one
		// here should never be what we wait for. It cannot be 0, which means
		// 60 s. Making a new engine per opening, with the time drawn, was the
		// alternative: it loses gobreaker's own transition from open to
		// half-open.
		Timeout: time.Nanosecond,

		ReadyToTrip:   b.ripe,
		IsSuccessful:  func(err error) bool { return err == nil },
		IsExcluded:    func(err error) bool { return errors.Is(err, errIgnored) },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.noted = to },
	}
}

// ripe tells gobreaker, after a failure in the closed state, whether to open.
func (b *Breaker) ripe(n gobreaker.Counts) bool {
	switch {
	case b.failures >= b.cfg.Failures:
		return true
	case b.cfg.FailureRatio < 0:
		return false
	}
	// Ended calls only: Requests includes those in flight.
	ended := uint64(n.TotalFailures) + uint64(n.TotalSuccesses)
	return ended >= uint64(b.cfg.MinCalls) &&
		float64(n.TotalFailures) >= b.cfg.FailureRatio*float64(ended)
}

// endProbe reports the probe that is out, whether it has ended or was given
// up. gobreaker counts an excluded call off again, which frees the one place
// of the half-open state.
func (b *Breaker) endProbe(result error) {
	b.probe.done(result)
	b.probe = probe{}
}

// settle follows the engine where it has noted a change.
func (b *Breaker) settle(cause error) {
	from, to := b.State(), stateOf(b.noted)
	if from == to {
		return
	}
	change := breaker.Change{From: from, To: to, At: time.Now()}
	if to == breaker.Open {
		// Read after gobreaker read its own clock, so that gobreaker is never
		// behind us. Uniform in [⌊½·OpenFor⌋, ⌊½·OpenFor⌋ + OpenFor).
		change.OpenFor = b.cfg.OpenFor/2 + time.Duration(b.random(int64(b.cfg.OpenFor)))
		change.Cause = cause
		b.retryAt = change.At.Add(change.OpenFor)
	}
	b.enter(to)
	b.note(change)
}

// enter begins a generation in state s. The one gobreaker keeps moves at the
// same moments, but it looks at the clock first: a late result can turn its
// open state into a half-open one. So results of older generations stop at
// ours and do not reach it.
func (b *Breaker) enter(s breaker.State) {
	b.generation++
	b.failures = 0
	b.probe = probe{}
	b.state.Store(uint32(s))
}

func stateOf(s gobreaker.State) breaker.State {
	switch s {
	case gobreaker.StateOpen:
		return breaker.Open
	case gobreaker.StateHalfOpen:
		return breaker.HalfOpen
	}
	return breaker.Closed
}
