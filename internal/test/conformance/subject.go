package conformance

import (
	"context"
	"errors"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// clockSlack is the longest time by which the limiter's clock may be ahead of the suite's clock: the rounding of its
// ticks, at most 1 µs.
const clockSlack = time.Microsecond

// subject is a fresh limiter, with the checks that apply to every answer.
type subject struct {
	t     *testing.T
	spec  Spec
	limit hybridlimit.Limit
	lim   Limiter
	start time.Time

	mu       sync.Mutex
	admitted map[string]int64
}

// newSubject makes a limiter of rate units per period.
func newSubject(t *testing.T, spec Spec, rate int64, per time.Duration, burst int64) *subject {
	t.Helper()
	spec = spec.withDefaults()
	s := &subject{t: t, spec: spec, limit: spec.Bucket(rate, per, burst), start: time.Now(), admitted: map[string]int64{}}
	s.lim = spec.New(t, s.limit).(Limiter)
	return s
}

// still makes a limiter that refills no unit during a test. A unit takes an hour, or longer if a window of the clock
// would end soon.
func still(t *testing.T, spec Spec, burst int64) *subject {
	t.Helper()
	return newSubject(t, spec, 1, testenv.OpenWindow(time.Now(), burst, time.Hour), burst)
}

// lively makes a limiter that refills a unit every 20 ms, up to a burst of 5.
func lively(t *testing.T, spec Spec) *subject {
	t.Helper()
	return newSubject(t, spec, 50, time.Second, 5)
}

// allow asks for n units of key, and checks the properties that every answer must have.
func (s *subject) allow(key string, n int64) hybridlimit.Result {
	s.t.Helper()
	var res hybridlimit.Result
	var err error
	if n == 1 {
		res, err = s.lim.Allow(context.Background(), key)
	} else {
		res, err = s.lim.AllowN(context.Background(), key, n)
	}
	if err != nil {
		s.t.Errorf("AllowN(%q, %d): %v; a denial is no error", key, n, err)
		return res
	}
	s.check(key, n, res)
	return res
}

func (s *subject) check(key string, n int64, res hybridlimit.Result) {
	s.t.Helper()
	bad := func(format string, args ...any) {
		s.t.Helper()
		s.t.Errorf("AllowN(%q, %d) = %+v: "+format, append([]any{key, n, res}, args...)...)
	}
	if res.Allowed {
		if res.Granted != n {
			bad("Allowed is true, so Granted must be the cost")
		}
		if res.RetryAfter != 0 {
			bad("Allowed is true, so RetryAfter must be 0")
		}
	} else {
		if res.Granted != 0 {
			bad("Allowed is false, so Granted must be 0")
		}
		if res.RetryAfter <= 0 {
			bad("Allowed is false, so RetryAfter must be above 0")
		}
		if never := n > s.limit.BurstSize(); never != (res.RetryAfter == hybridlimit.Never) {
			bad("RetryAfter must be Never for a cost above the burst, and for no other cost")
		}
	}
	if res.Limit != s.limit.BurstSize() {
		bad("Limit must be %d", s.limit.BurstSize())
	}
	if res.Remaining < 0 || res.Remaining > res.Limit {
		bad("Remaining must be 0 to Limit")
	}
	if res.ResetAfter < 0 || res.ResetAfter == hybridlimit.Never {
		bad("ResetAfter must be a finite time, at least 0")
	}
	if res.Delay != 0 && s.limit.Algorithm != hybridlimit.AlgLeakyQueue {
		bad("Delay must be 0, because only a queue has a delay")
	}
	if res.Delay < 0 || res.Delay > res.ResetAfter {
		bad("Delay must be 0 to ResetAfter, because a queue is empty only after all its calls have started")
	}
	if res.Policy != s.spec.Policy {
		bad("Policy must be %q", s.spec.Policy)
	}
	if res.Source == hybridlimit.SourceUnknown || int(res.Source) >= adapter.NumSources {
		bad("Source must be known")
	}
	s.count(key, res)
}

// answered checks the answer of a call that may have failed with an error: then it grants nothing.
func (s *subject) answered(key string, res hybridlimit.Result, err, may error) {
	s.t.Helper()
	switch {
	case err == nil:
		s.check(key, 1, res)
	case !errors.Is(err, may):
		s.t.Errorf("a call returned the error %v, want %v", err, may)
	case res.Allowed || res.Granted != 0:
		s.t.Errorf("a call failed with %v, but its result grants units: %+v", err, res)
	}
}

// count adds the units admitted and compares their sum with burst + rate·t.
func (s *subject) count(key string, res hybridlimit.Result) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admitted[key] += res.Granted
	if got, most := s.admitted[key], s.most(time.Since(s.start)); got > most && res.Granted > 0 { // a charge may exceed the bound
		s.t.Errorf("key %q: %d units admitted in %v, want at most %d: %+v", key, got, time.Since(s.start), most, res)
	}
}

// most returns the largest number of units that a key may get in the first t of its life.
func (s *subject) most(t time.Duration) int64 {
	most, windows := s.limit.BurstSize(), int64((t+clockSlack)/s.limit.Period)
	switch s.limit.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow, hybridlimit.AlgCalendarWindow: // the first window may have begun before
		most *= windows + 2
	case hybridlimit.AlgSlidingLog:
		most *= windows + 1
	default:
		most += s.refilled(t + clockSlack)
	}
	return most + s.spec.Slack(s.limit)
}

// least returns the number of units that an exact limiter grants at least to a caller that asks all the time during t,
// including at its end.
func (s *subject) least(t time.Duration) int64 {
	switch s.limit.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgCalendarWindow, hybridlimit.AlgSlidingLog:
		return s.limit.BurstSize() * (1 + int64(t/s.limit.Period))
	case hybridlimit.AlgSlidingWindow: // an estimate may be too high by a window
		return s.limit.BurstSize() * max(1, int64(t/s.limit.Period))
	}
	return s.limit.BurstSize() + s.refilled(t)
}

// inWindows reports whether the limit counts in windows of the clock.
func (s *subject) inWindows() bool {
	switch s.limit.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow, hybridlimit.AlgCalendarWindow:
		return true
	}
	return false
}

// fresh returns a time after which a key has the state of an unused key.
func (s *subject) fresh() time.Duration { return 2 * s.limit.TimeToFull() }

// refilled returns the number of whole units that refill in t.
func (s *subject) refilled(t time.Duration) int64 {
	x := new(big.Int).Mul(big.NewInt(s.limit.Rate), big.NewInt(int64(t)))
	return x.Quo(x, big.NewInt(int64(s.limit.Period))).Int64()
}

// total returns the units that key has got so far.
func (s *subject) total(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admitted[key]
}

// forget starts a new life of key: it resets the units that key has got.
func (s *subject) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admitted[key] = 0
}

// drain asks for single units until one is denied. It returns the denial and the number of units admitted before it.
func (s *subject) drain(key string) (denial hybridlimit.Result, n int64) {
	s.t.Helper()
	for ; !s.t.Failed(); n++ {
		if res := s.allow(key, 1); !res.Allowed {
			return res, n
		}
	}
	s.t.FailNow()
	return
}

// full takes all units of key, and fails unless they were a whole burst. If the limiter is not exact, one unit is
// enough.
func (s *subject) full(key, why string) {
	s.t.Helper()
	_, n := s.drain(key)
	switch {
	case s.spec.Exact && n < s.limit.BurstSize():
		s.t.Errorf("key %q: %d of %d units were left, want all, because %s", key, n, s.limit.BurstSize(), why)
	case n == 0:
		s.t.Errorf("key %q: no unit was left, want at least one, because %s", key, why)
	}
}

// await asks again after each RetryAfter until the call is admitted.
func (s *subject) await(key string, n int64, res hybridlimit.Result) {
	s.t.Helper()
	const tries = 500
	for i := range tries {
		if res.Allowed || s.t.Failed() {
			return
		}
		s.spec.Sleep(res.RetryAfter)
		res = s.allow(key, n)
		if !res.Allowed && !s.mayRetry(n, i) {
			s.t.Errorf("AllowN(%q, %d) was denied again after its RetryAfter: %+v", key, n, res)
		}
	}
	s.t.Errorf("AllowN(%q, %d) is still denied after %d waits for its RetryAfter: %+v", key, n, tries, res)
}

// mayRetry reports whether a call for n units may be denied after its RetryAfter, after it was denied so a number of
// times before.
func (s *subject) mayRetry(n int64, before int) bool {
	if s.spec.RetryByWindow && time.Now().Round(0).Sub(time.Now().Round(0).Truncate(s.limit.Period)) <= max(s.spec.Tick, s.spec.WindowSlack) {
		return true
	}
	return s.spec.RetryIsLowerBound || s.spec.RetryOfFewer && n > 1 && before == 0
}

// split returns the units in the limiter's hand that cannot be taken together with others.
func (s *subject) split() int64 {
	if s.spec.Split == nil {
		return 0
	}
	return s.spec.Split(s.lim)
}
