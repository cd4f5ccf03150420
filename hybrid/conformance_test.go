package hybrid_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/conformance"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

var modes = []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact}

// conformanceSpec returns the promises of a single process in a mode. The process gets
// all available units, with the exceptions in docs/protocol.md ("What is surely
// admitted"). ModeDeferred is not exact: units that are owed reach Redis late, also after
// a Reset. But a denied call is admitted at its RetryAfter in every mode.
func conformanceSpec(mode hybrid.Mode, of conformance.Algorithm) conformance.Spec {
	exact := mode != hybrid.ModeDeferred
	if of.Bucket(1, time.Second, 1).Algorithm == hybridlimit.AlgSlidingLog {
		exact = true
	}
	spec := conformance.Spec{
		Name: mode.String() + " " + of.Name, Bucket: of.Bucket,
		Close:  func(l hybridlimit.Limiter) error { return l.(*hybrid.Limiter).Close() },
		Policy: "api", Exact: exact,
		RetrySlack:  10 * time.Millisecond,
		WindowSlack: 10 * time.Millisecond, // the clock of the fast path is up to a tick behind
		Light:       of.Name != "token bucket" || mode == hybrid.ModeExact,
	}
	if mode == hybrid.ModeExact {
		spec.RetrySlack = 0
		return spec
	}
	switch of.Bucket(1, time.Second, 1).Algorithm {
	case hybridlimit.AlgTokenBucket, hybridlimit.AlgLeakyBucket:
		spec.Lag, spec.Split = 100*time.Millisecond, held // T; a free lease
	case hybridlimit.AlgLeakyQueue:
		spec.Split = held // slots
	case hybridlimit.AlgSlidingWindow:
		spec.RetryByWindow, spec.ForgetsWindow = true, true
	case hybridlimit.AlgSlidingLog:
		spec.RetryOfFewer, spec.RetrySlack = true, 0
	}
	return spec
}

func held(l hybridlimit.Limiter) int64 { return l.(*hybrid.Limiter).Stats().Held }

// TestConformance runs the suite in each mode, and on each algorithm. The full form runs it on each of their pairs that are decided
// in different ways, and in the modes that give credit also before they give any.
func TestConformance(t *testing.T) {
	algorithms := conformance.Algorithms()
	if !testenv.Full() {
		for i, of := range algorithms {
			mode := hybrid.ModeAuto
			switch of.Bucket(1, time.Second, 1).Algorithm {
			case hybridlimit.AlgFixedWindow:
				mode = hybrid.ModeDeferred
			case hybridlimit.AlgSlidingWindow:
				mode = hybrid.ModeStrict
			}
			inVirtualTime(t, mode, of, mode == hybrid.ModeAuto || mode == hybrid.ModeDeferred)
			if i == 0 {
				inVirtualTime(t, hybrid.ModeAuto, of, false)
				inVirtualTime(t, hybrid.ModeStrict, of, false)
				inVirtualTime(t, hybrid.ModeDeferred, of, true)
				inVirtualTime(t, hybrid.ModeExact, of, false)
			}
		}
		return
	}
	for _, mode := range modes {
		inVirtualTime(t, mode, algorithms[0], false)
		if mode == hybrid.ModeAuto || mode == hybrid.ModeDeferred { // the modes that give credit
			inVirtualTime(t, mode, algorithms[0], true)
		}
	}
	for _, of := range algorithms[1:] {
		switch of.Bucket(1, time.Second, 1).Algorithm {
		case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow:
			inVirtualTime(t, hybrid.ModeAuto, of, true)
			inVirtualTime(t, hybrid.ModeStrict, of, false)
			inVirtualTime(t, hybrid.ModeDeferred, of, true)
		case hybridlimit.AlgLeakyQueue:
			inVirtualTime(t, hybrid.ModeAuto, of, true)
			inVirtualTime(t, hybrid.ModeStrict, of, false)
			inVirtualTime(t, hybrid.ModeExact, of, false)
		default: // a bucket under another name, or a limit that is exact in every mode
			inVirtualTime(t, hybrid.ModeAuto, of, true)
		}
	}
}

// TestConformanceAmongOthers runs the suite on one process of three. The others are alive, and use none of the keys.
// Processes take turns there, so the process does not get every unit at once. But it gets each at its RetryAfter.
func TestConformanceAmongOthers(t *testing.T) {
	for i, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
		for j, of := range conformance.Algorithms()[1:3] {
			if i != j && !testenv.Full() {
				continue
			}
			spec := conformanceSpec(mode, of)
			spec.Wrap, spec.Exact = synctest.Test, false
			spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
				b := redistest.NewBubble(tb)
				var l hybridlimit.Limiter
				for range 3 {
					l = newLimiter(tb, b.Client(nil), limit, patient(hybrid.Config{Mode: mode}))
				}
				time.Sleep(3 * time.Second)
				return l
			}
			t.Run("", func(t *testing.T) {
				t.Parallel()
				conformance.Run(t, spec)
			})
		}
	}
}

// TestConformanceBesideNeighbours runs the suite on a limiter whose hub has limiters of every algorithm in every mode, with
// calls of every verb. It has the promises of a limiter alone.
func TestConformanceBesideNeighbours(t *testing.T) {
	for i, of := range conformance.Algorithms() {
		mode := modes[i%len(modes)]
		if i%5 != 0 && !testenv.Full() {
			continue
		}
		spec := conformanceSpec(mode, of)
		spec.Name += ", beside others"
		spec.Wrap, spec.Light = synctest.Test, true
		spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			l := newLimiter(tb, redistest.NewBubble(tb).Client(nil), limit, patient(hybrid.Config{Mode: mode}))
			set, err := neighbours.Add(l.Hub(), 1)
			if err != nil {
				tb.Fatal(err)
			}
			ended := make(chan struct{})
			tb.Cleanup(func() { close(ended) })
			go func() {
				for tick := time.NewTicker(137 * time.Millisecond); ; {
					select {
					case <-ended:
						return
					case <-tick.C:
						set.Call()
					}
				}
			}()
			if mode == hybrid.ModeDeferred {
				time.Sleep(3 * time.Second)
			}
			return l
		}
		t.Run("", func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, spec)
		})
	}
}

// TestConformanceOfTheCriticalClass runs the suite on the critical class of a limiter whose other classes have no calls. It has
// the promises of one process among others, because each class counts as an account. ModeDeferred has none of them then.
func TestConformanceOfTheCriticalClass(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeExact} {
		spec := conformanceSpec(mode, conformance.Algorithms()[0])
		spec.Name += ", critical"
		spec.Wrap, spec.Light = synctest.Test, true
		spec.Exact = spec.Exact && mode == hybrid.ModeExact
		spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			l := newLimiter(tb, redistest.NewBubble(tb).Client(nil), limit, patient(hybrid.Config{Mode: mode, Classes: twoClasses}))
			time.Sleep(3 * time.Second)
			return l
		}
		t.Run("", func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, spec)
		})
	}
}

// inVirtualTime runs the suite in a bubble. If warm is set, the suite begins
// after the limiter gives credit.
func inVirtualTime(t *testing.T, mode hybrid.Mode, of conformance.Algorithm, warm bool) {
	spec := conformanceSpec(mode, of)
	spec.Wrap = synctest.Test
	spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
		l := newLimiter(tb, redistest.NewBubble(tb).Client(nil), limit, patient(hybrid.Config{Mode: mode}))
		if warm {
			time.Sleep(3 * time.Second)
		}
		return l
	}
	if warm {
		spec.Name += " warm"
	}
	t.Run("", func(t *testing.T) {
		t.Parallel()
		conformance.Run(t, spec)
	})
}

func TestConformanceOnRedis(t *testing.T) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) { conformanceOnRedis(t, functions) })
	}
}

func conformanceOnRedis(t *testing.T, functions bool) {
	t.Parallel()
	srv := redistest.New(t)
	if functions {
		redistest.NeedFunctions(t, srv.Client(t))
	}
	var prefixes atomic.Int64
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeExact} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			spec := conformanceSpec(mode, conformance.Algorithms()[0])
			spec.Name = ""
			// The clocks of Redis and of this process are read at different
			// moments. Only virtual time is exact to the µs.
			spec.Exact, spec.RetryIsLowerBound = false, true
			spec.WindowSlack = 200 * time.Millisecond // a tick comes late on a busy machine
			spec.New = func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
				cfg := patient(hybrid.Config{Mode: mode})
				cfg.Hub.Prefix, cfg.Hub.Functions = fmt.Sprint("p", prefixes.Add(1)), functions
				return newLimiter(tb, srv.Client(tb), limit, cfg)
			}
			conformance.Run(t, spec)
		})
	}
}
