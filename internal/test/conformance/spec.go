// Package conformance checks the promises that every limiter of units makes to its callers, by all of its verbs. Each
// promise is a subtest. Its own tests compare the three limiters with each other. Packages run it over their limiters,
// in each mode:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Spec{
//			New:  ...,
//			Wrap: synctest.Test, // virtual time: the suite sleeps for free
//		})
//	}
//
// The suite starts no goroutine that outlives its subtest, and time.Now is its only clock. So it can run inside a
// testing/synctest bubble. In real time it sleeps for about two seconds in all. Its checks hold even if a sleep returns
// late.
package conformance

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// Spec describes the limiter under test and the strength of its promises. The zero value of each choice is the weaker
// promise.
type Spec struct {
	// Name is the name of the group of subtests that Run makes. Empty: the cases are subtests of the caller's test.
	Name string
	// New makes a Limiter whose keys are all unused, and closes it with tb.Cleanup. Required.
	New func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter
	// Close closes a limiter that New made. Required.
	Close func(hybridlimit.Limiter) error
	// partial is set by a test of the suite whose limiter has Reserve and Refund, and no verb besides.
	partial bool
	// Wrap runs the body of a subtest, for example in a bubble: synctest.Test. Nil: the body is called directly, in
	// real time.
	Wrap func(t *testing.T, f func(t *testing.T))
	// Sleep lets time pass for the limiter. Nil: time.Sleep, which takes virtual time in a bubble.
	Sleep func(time.Duration)
	// Bucket makes the limits, for example hybridlimit.LeakyBucket, hybridlimit.LeakyQueue, or the result of Window.
	// Nil: hybridlimit.TokenBucket.
	Bucket func(rate int64, per time.Duration, burst int64) hybridlimit.Limit
	// Policy is the required Policy of every Result.
	Policy string
	// MaxKeyBytes is the length of the longest key that the limiter accepts. Zero: adapter.DefaultMaxKeyBytes.
	MaxKeyBytes int
	// Exact promises that the limiter admits every unit that the key has left, and that Remaining is their number. If
	// it is false, the suite requires only the first unit of an unused key.
	Exact bool
	// RetryIsLowerBound means that a call may be denied again after its RetryAfter. Waiting repeatedly must still lead
	// to an admission.
	RetryIsLowerBound bool
	// RetrySlack is the longest time before its RetryAfter at which a call may be admitted already. A call at its
	// RetryAfter is admitted all the same. Zero: a Tick.
	RetrySlack time.Duration
	// Lag is the longest time for which a unit that has come back may still be denied, although Remaining includes it.
	// A denial has a smaller Remaining than its cost all the same, and the call is admitted at its RetryAfter. Zero:
	// none.
	Lag time.Duration
	// Split returns the units of Remaining that are in the limiter's own hand. A call can take either these or the
	// others. So while it is above 0, a call for all units of Remaining may be denied, but single calls get them. Nil:
	// none.
	Split func(hybridlimit.Limiter) int64
	// RetryOfFewer means that a denial may follow from the refusal of fewer units. Its RetryAfter is then the one of
	// those units, and the call may be denied again once.
	RetryOfFewer bool
	// RetryByWindow means that units which are leased after a denial count in a sliding window. So a call may be denied
	// again at the beginning of a window, and at no other time.
	RetryByWindow bool
	// ForgetsWindow means that in a window of which the limiter has not heard, Peek takes a key for unused.
	ForgetsWindow bool
	// Tick is the resolution of the limiter's clock, and so of an exact RetryAfter or ResetAfter. Zero: a microsecond,
	// the resolution of Redis.
	Tick time.Duration
	// WindowSlack is the largest difference between the ends of one window in two answers. Zero: a Tick.
	WindowSlack time.Duration
	// Light reduces the cases with many callers to a quarter of their calls. It is for a limiter that passes all calls
	// under another algorithm.
	Light bool
	// real is set if Wrap is nil. Time is then real, and sleeping takes time.
	real bool
	// Slack returns the number of units that may be admitted beyond burst + rate·t. Nil: none.
	Slack func(hybridlimit.Limit) int64
}

// calls returns the number of calls in a case with many callers: n, or fewer if Light is set.
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
		s.MaxKeyBytes = adapter.DefaultMaxKeyBytes
	}
	if s.Tick == 0 {
		s.Tick = time.Microsecond
	}
	if s.Slack == nil {
		s.Slack = func(hybridlimit.Limit) int64 { return 0 }
	}
	return s
}

// Case is one promise. Run never calls t.Run, because it may run inside a bubble.
type Case struct {
	Name string
	Run  func(t *testing.T, spec Spec)
}

// Cases returns all promises, for callers that do not use Run.
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
		{"cancel in any order", func(t *testing.T, spec Spec) { cancelAnyOrder(t, spec, false) }},
		{"cancel late", func(t *testing.T, spec Spec) { cancelAnyOrder(t, spec, true) }},
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
		{"verbs concurrently", verbsConcurrently},
	}
}

// Run runs every case as a subtest.
func Run(t *testing.T, spec Spec) {
	t.Helper()
	if name := spec.Name; name != "" {
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

// LateInTheHour is a Wrap: a bubble whose clock shows half a minute to midnight, so that an hour and a day are about to
// end.
func LateInTheHour(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - 30*time.Second) // a bubble begins at midnight
		f(t)
	})
}

// Window converts the constructor of a window to a Spec's Bucket. The window admits the burst in the time in which a
// bucket would fill.
func Window(of func(n int64, window time.Duration) hybridlimit.Limit) func(int64, time.Duration, int64) hybridlimit.Limit {
	return func(rate int64, per time.Duration, burst int64) hybridlimit.Limit {
		return of(burst, hybridlimit.TokenBucket(rate, per, burst).TimeToFull())
	}
}

// Algorithm is a Spec's Bucket with its name.
type Algorithm struct {
	Name   string
	Bucket func(rate int64, per time.Duration, burst int64) hybridlimit.Limit
}

// Algorithms returns all algorithms that count units, for a run of the suite on each.
func Algorithms() []Algorithm {
	return []Algorithm{
		{"token bucket", hybridlimit.TokenBucket},
		{"leaky bucket", hybridlimit.LeakyBucket},
		{"leaky queue", hybridlimit.LeakyQueue},
		{"fixed window", Window(hybridlimit.FixedWindow)},
		{"sliding window", Window(hybridlimit.SlidingWindow)},
		{"sliding log", Window(hybridlimit.SlidingLog)},
		{"window from use", Window(fromUse)},
	}
}

// fromUse is a window of whole seconds that begins with a use.
func fromUse(n int64, per time.Duration) hybridlimit.Limit {
	return hybridlimit.WindowFromUse(n, max(per.Truncate(time.Second), time.Second))
}
