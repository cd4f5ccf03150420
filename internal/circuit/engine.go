package circuit

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// This file is the adapter to gobreaker. Each function is called with b.mu held.
//
// gobreaker runs its callbacks under its own mutex, where calling it back deadlocks. So the callbacks only compare and
// note. settle acts on a note after gobreaker has returned, and release calls OnChange after b.mu is free.

// The results that gobreaker receives. It never receives the error of a call: that error is classified before any lock
// is taken, since its methods are foreign code.
var (
	errFailed  = errors.New("failed")
	errIgnored = errors.New("ignored")
)

// windowSteps is the number of steps in which the window of FailureRatio moves. gobreaker's default is a window that
// restarts empty. It would drop the results of the calls in flight at a restart, and count half of a burst of failures
// that spans one.
const windowSteps = 10

func (b *Breaker) settings() gobreaker.Settings {
	return gobreaker.Settings{
		MaxRequests:  1, // probes at a time, and the successes that close
		Interval:     b.cfg.Window,
		BucketPeriod: b.cfg.Window / windowSteps,

		// gobreaker's open time is fixed when it is made. Here each opening draws its own, and Begin refuses until
		// retryAt. So gobreaker's must always end first. It cannot be 0, which means 60 s. The rejected alternative, a
		// new engine per opening, loses gobreaker's own transition from open to half-open.
		Timeout: time.Nanosecond,

		ReadyToTrip:   b.ripe,
		IsSuccessful:  func(err error) bool { return err == nil },
		IsExcluded:    func(err error) bool { return errors.Is(err, errIgnored) },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.noted = to },
	}
}

// ripe reports whether to open. gobreaker calls it after a failure in the closed state.
func (b *Breaker) ripe(n gobreaker.Counts) bool {
	switch {
	case b.failures >= b.cfg.Failures:
		return true
	case b.cfg.FailureRatio < 0:
		return false
	}
	// Without n.Requests, which includes calls in flight.
	ended := uint64(n.TotalFailures) + uint64(n.TotalSuccesses)
	return ended >= uint64(b.cfg.MinCalls) &&
		float64(n.TotalFailures) >= b.cfg.FailureRatio*float64(ended)
}

// endProbe reports the probe in flight, ended or lost, to gobreaker. gobreaker takes an excluded call off its count,
// which frees the only place of the half-open state.
func (b *Breaker) endProbe(result error) {
	b.probe.done(result)
	b.probe = probe{}
}

// settle follows the engine if it has noted a change.
func (b *Breaker) settle(cause error) {
	from, to := b.State(), stateOf(b.noted)
	if from == to {
		return
	}
	change := breaker.Change{From: from, To: to, At: time.Now()}
	if to == breaker.Open {
		// Uniform in [⌊½·openFor⌋, ⌊½·openFor⌋ + openFor). change.At was read after gobreaker read its clock, so
		// gobreaker's open time ends before retryAt.
		mean := b.openFor()
		change.OpenFor = mean/2 + time.Duration(b.random(int64(mean)))
		change.Cause = cause
		b.retryAt = change.At.Add(change.OpenFor)
	}
	b.enter(to)
	b.note(change)
}

// enter begins a generation in state s. gobreaker's own generation changes at the same moments, but gobreaker reads the
// clock first: a late result can turn its open state into half-open. So End drops the results of older generations
// before they reach gobreaker.
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
