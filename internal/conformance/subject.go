package conformance

import (
	"context"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

// clockSlack is how much longer than ours the limiter's clock may have run: the
// rounding of its ticks, 1 µs at most.
const clockSlack = time.Microsecond

// subject is a fresh limiter and the checks that hold for every answer.
type subject struct {
	t     *testing.T
	spec  Spec
	limit hybridlimit.Limit
	lim   hybridlimit.Limiter
	start time.Time

	mu       sync.Mutex
	admitted map[string]int64
}

// newSubject makes a limiter of rate units per period.
func newSubject(t *testing.T, spec Spec, rate int64, per time.Duration, burst int64) *subject {
	t.Helper()
	spec = spec.withDefaults()
	s := &subject{t: t, spec: spec, limit: spec.Bucket(rate, per, burst), start: time.Now(), admitted: map[string]int64{}}
	s.lim = spec.New(t, s.limit)
	return s
}

// still is a limiter that gains nothing while a test runs: a unit takes an hour,
// or so much longer that no window of the clock ends soon.
func still(t *testing.T, spec Spec, burst int64) *subject {
	t.Helper()
	return newSubject(t, spec, 1, testenv.OpenWindow(time.Now(), burst, time.Hour), burst)
}

// lively is a limiter that gains a unit every 20 ms, 5 at most.
func lively(t *testing.T, spec Spec) *subject {
	t.Helper()
	return newSubject(t, spec, 50, time.Second, 5)
}

// allow asks for n units of key and checks what must be true of any answer.
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
			bad("granted must be the cost")
		}
		if res.RetryAfter != 0 {
			bad("allowed, so there is nothing to retry")
		}
	} else {
		if res.Granted != 0 {
			bad("denied, so nothing may be granted")
		}
		if res.RetryAfter <= 0 {
			bad("a denial must say when to retry")
		}
		if never := n > s.limit.BurstSize(); never != (res.RetryAfter == hybridlimit.Never) {
			bad("Never is for a cost above the burst, and for nothing else")
		}
	}
	if res.Limit != s.limit.BurstSize() {
		bad("Limit must be %d", s.limit.BurstSize())
	}
	if res.Remaining < 0 || res.Remaining > res.Limit {
		bad("Remaining must lie in 0..Limit")
	}
	if res.ResetAfter < 0 || res.ResetAfter == hybridlimit.Never {
		bad("a bucket is full after a finite time")
	}
	if res.Delay != 0 && s.limit.Algorithm != hybridlimit.AlgLeakyQueue {
		bad("only a queue delays")
	}
	if res.Delay < 0 || res.Delay > res.ResetAfter {
		bad("a queue is not empty before all in it have started")
	}
	if res.Policy != s.spec.Policy {
		bad("Policy must be %q", s.spec.Policy)
	}
	if res.Source == hybridlimit.SourceUnknown || int(res.Source) >= hybridlimit.NumSources {
		bad("somebody must have decided")
	}
	s.count(key, res)
}

// count notes what was admitted and holds it against burst + rate·t.
func (s *subject) count(key string, res hybridlimit.Result) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admitted[key] += res.Granted
	if got, most := s.admitted[key], s.most(time.Since(s.start)); got > most && res.Granted > 0 { // a charge may exceed it
		s.t.Errorf("key %q: %d units admitted in %v, at most %d may be: %+v", key, got, time.Since(s.start), most, res)
	}
}

// most is how many units a key may get in the first t of its life.
func (s *subject) most(t time.Duration) int64 {
	most, windows := s.limit.BurstSize(), int64((t+clockSlack)/s.limit.Period)
	switch s.limit.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow: // the first may have begun before
		most *= windows + 2
	case hybridlimit.AlgSlidingLog:
		most *= windows + 1
	default:
		most += s.refilled(t + clockSlack)
	}
	return most + s.spec.Slack(s.limit)
}

// least is how many units an exact limiter grants to one who asks all the time,
// in t, and when it ends.
func (s *subject) least(t time.Duration) int64 {
	switch s.limit.Algorithm {
	case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingLog:
		return s.limit.BurstSize() * (1 + int64(t/s.limit.Period))
	case hybridlimit.AlgSlidingWindow: // an estimate may be too high by a window
		return s.limit.BurstSize() * max(1, int64(t/s.limit.Period))
	}
	return s.limit.BurstSize() + s.refilled(t)
}

// fresh is a time in which a key becomes as if never used.
func (s *subject) fresh() time.Duration { return 2 * s.limit.TimeToFull() }

// refilled is how many whole units come back in t.
func (s *subject) refilled(t time.Duration) int64 {
	x := new(big.Int).Mul(big.NewInt(s.limit.Rate), big.NewInt(int64(t)))
	return x.Quo(x, big.NewInt(int64(s.limit.Period))).Int64()
}

// total is what key has got so far.
func (s *subject) total(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admitted[key]
}

// forget begins a new life of key.
func (s *subject) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admitted[key] = 0
}

// drain asks for single units until one is denied, and returns the denial and
// how many were admitted before it.
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

// full fails unless key has a whole burst, of which it takes everything. Where
// the limiter is not exact, one unit will do.
func (s *subject) full(key, why string) {
	s.t.Helper()
	_, n := s.drain(key)
	switch {
	case s.spec.Exact && n < s.limit.BurstSize():
		s.t.Errorf("key %q: %d of %d units were left, want all: %s", key, n, s.limit.BurstSize(), why)
	case n == 0:
		s.t.Errorf("key %q: not one unit was left: %s", key, why)
	}
}

// await asks again after each RetryAfter until the call is admitted.
func (s *subject) await(key string, n int64, res hybridlimit.Result) {
	s.t.Helper()
	const tries = 500
	for range tries {
		if res.Allowed || s.t.Failed() {
			return
		}
		s.spec.Sleep(res.RetryAfter)
		res = s.allow(key, n)
		if !res.Allowed && !s.spec.RetryIsLowerBound {
			s.t.Errorf("AllowN(%q, %d) was denied again after its RetryAfter: %+v", key, n, res)
		}
	}
	s.t.Errorf("AllowN(%q, %d) is still denied after %d times its RetryAfter: %+v", key, n, tries, res)
}
