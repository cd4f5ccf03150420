// Package conformance checks the promises that every hybridlimit.Limiter makes
// to its callers. Each promise is a subtest. Limiters with more verbs are
// checked for these too (verbs.go). Its own tests compare the three limiters
// with each other. Packages run it over their limiters, in each mode:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Spec{
//			New:  ...,
//			Wrap: synctest.Test, // virtual time: the suite sleeps for free
//		})
//	}
//
// The suite starts no goroutine that outlives its subtest and reads no clock
// but time.Now, so that it can run inside a testing/synctest bubble. In real
// time it sleeps for about two seconds in all, and its checks hold however
// late a sleep returns.
package conformance

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Spec describes the limiter under test, and how strict its promises are. The
// zero value of each choice is the weaker promise.
type Spec struct {
	// Name names the group of subtests that Run makes. Empty: none, the cases
	// stand directly below the caller's test.
	Name string
	// New makes a fresh limiter, with keys that nobody has used, and closes it
	// by tb.Cleanup. Required.
	New func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter
	// Close closes a limiter that New made. Required.
	Close func(hybridlimit.Limiter) error
	// Wrap runs the body of a subtest, in a bubble for example: synctest.Test.
	// Nil: the body is called.
	Wrap func(t *testing.T, f func(t *testing.T))
	// Sleep lets time pass for the limiter. Nil: time.Sleep, which is virtual
	// in a bubble.
	Sleep func(time.Duration)
	// Bucket makes the limits: hybridlimit.LeakyBucket, hybridlimit.LeakyQueue,
	// or Window of a window, for example. Nil: hybridlimit.TokenBucket.
	Bucket func(rate int64, per time.Duration, burst int64) hybridlimit.Limit
	// Policy is what every Result must carry as Policy.
	Policy string
	// MaxKeyBytes is the longest key that is taken. Zero:
	// hybridlimit.DefaultMaxKeyBytes.
	MaxKeyBytes int
	// Exact promises that no unit is ever denied that the bucket holds, and
	// that Remaining is what it holds. Without it the suite wants at least the
	// first unit of a key that was never used.
	Exact bool
	// RetryIsLowerBound says that a call may be denied again after its
	// RetryAfter. Waiting repeatedly must still lead to an admission.
	RetryIsLowerBound bool
	// Tick is the resolution of the limiter's clock, and so of what RetryAfter
	// and ResetAfter mean where they are exact. Zero: a microsecond, Redis's.
	Tick time.Duration
	// WindowSlack is by how much the ends of a window that two answers name may
	// differ. Zero: a Tick.
	WindowSlack time.Duration
	// Light runs the cases with many callers with a quarter of their calls: for
	// a limiter that went through all of them under another algorithm.
	Light bool
	// real is set where Wrap is not: time is real then, and sleeping costs.
	real bool
	// Slack is how many units may be admitted beyond burst + rate·t. Nil: none.
	Slack func(hybridlimit.Limit) int64
}

// calls is how many calls of n to make in a case with many callers.
func (s Spec) calls(n int) int {
	if s.Light {
		return n / 4
	}
	return n
}

func (s Spec) withDefaults() Spec {
	if s.Wrap == nil {
		s.real = true
		s.Wrap = func(t *testing.T, f func(t *testing.T)) { f(t) }
	}
	if s.Sleep == nil {
		s.Sleep = time.Sleep
	}
	if s.Bucket == nil {
		s.Bucket = hybridlimit.TokenBucket
	}
	if s.MaxKeyBytes == 0 {
		s.MaxKeyBytes = hybridlimit.DefaultMaxKeyBytes
	}
	if s.Tick == 0 {
		s.Tick = time.Microsecond
	}
	if s.Slack == nil {
		s.Slack = func(hybridlimit.Limit) int64 { return 0 }
	}
	return s
}

// Case is one promise. Run expects to be inside the bubble, if there is one: it
// never calls t.Run.
type Case struct {
	Name string
	Run  func(t *testing.T, spec Spec)
}

// Cases lists the promises, for callers that drive them in a way of their own.
func Cases() []Case {
	return []Case{
		{"burst", burst},
		{"denials change nothing", denials},
		{"all or none", allOrNone},
		{"above burst", aboveBurst},
		{"left above the burst", leftAboveBurst},
		{"remaining", remainingHolds},
		{"retry after", retryAfter},
		{"refill", refill},
		{"reset after", resetAfter},
		{"reset after in debt", resetInDebt},
		{"window ends", windowEnds},
		{"keys are independent", independentKeys},
		{"keys are bytes", keysAreBytes},
		{"bad input", badInput},
		{"ended context", endedContext},
		{"charge and refund", chargeAndRefund},
		{"reset", reset},
		{"reserve", reserve},
		{"cancel before others", cancelBeforeOthers},
		{"cancel the last", cancelLast},
		{"cancel in any order", cancelAnyOrder},
		{"cancel late", cancelLate},
		{"cancel after a border", cancelAfterBorder},
		{"refund after a border", refundAfterBorder},
		{"refund of a log", refundOfALog},
		{"wait", wait},
		{"give up waiting", giveUpWaiting},
		{"history", history},
		{"concurrent callers", concurrentCallers},
		{"concurrent refill", concurrentRefill},
		{"closed", closed},
		{"closed while in use", closedInUse},
		{"at most", atMost},
		{"peek", peek},
		{"charge", charge},
		{"limit of a call", allowLimit},
		{"set limit", setLimit},
		{"set limit in time", setLimitInTime},
		{"limits in turn", limitsInTurn},
		{"bad input to verbs", verbsBadInput},
		{"verbs when closed", verbsClosed},
		{"verbs concurrently", verbsConcurrently},
	}
}

// Run runs every case as a subtest.
func Run(t *testing.T, spec Spec) {
	t.Helper()
	if spec.Name != "" {
		name := spec.Name
		spec.Name = ""
		t.Run(name, func(t *testing.T) { Run(t, spec) })
		return
	}
	spec = spec.withDefaults()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			spec.Wrap(t, func(t *testing.T) { c.Run(t, spec) })
		})
	}
}

// LateInTheHour is a Wrap: a bubble whose clock shows half a minute to the full
// hour, of a day that ends with it.
func LateInTheHour(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - 30*time.Second) // a bubble begins at midnight
		f(t)
	})
}

// Window makes a window into a Spec's Bucket: as many units as the burst, in the
// time in which a bucket would fill.
func Window(of func(n int64, window time.Duration) hybridlimit.Limit) func(int64, time.Duration, int64) hybridlimit.Limit {
	return func(rate int64, per time.Duration, burst int64) hybridlimit.Limit {
		return of(burst, hybridlimit.TokenBucket(rate, per, burst).TimeToFull())
	}
}

// Algorithm is a Spec's Bucket by name.
type Algorithm struct {
	Name   string
	Bucket func(rate int64, per time.Duration, burst int64) hybridlimit.Limit
}

// Algorithms lists all that count, for a run of the suite over each.
func Algorithms() []Algorithm {
	return []Algorithm{
		{"token bucket", hybridlimit.TokenBucket},
		{"leaky bucket", hybridlimit.LeakyBucket},
		{"leaky queue", hybridlimit.LeakyQueue},
		{"fixed window", Window(hybridlimit.FixedWindow)},
		{"sliding window", Window(hybridlimit.SlidingWindow)},
		{"sliding log", Window(hybridlimit.SlidingLog)},
	}
}
