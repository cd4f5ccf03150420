package fleet

import (
	"cmp"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// collectLess raises the garbage collector's target. It does so for the whole test process, because runs may be
// parallel. miniredis creates a Lua state per call and all else is small, so without this half of the time would go
// into collecting these states. GOGC overrides it.
var collectLess = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
	}
})

// Run plays a scenario in its own bubble and returns the report. It fails the test only if the scenario cannot be
// played. Broken invariants are in Report.Violated. A goroutine that outlives its hub makes the bubble panic.
func Run(t *testing.T, s Scenario) Report {
	t.Helper()
	return run(t, s, nil)
}

// run is Run with a function that sees the world before the start.
func run(t *testing.T, s Scenario, look func(*world)) (r Report) {
	t.Helper()
	s = s.withDefaults()
	if err := s.Limit.Validate(); err != nil || s.Processes < 1 || s.Span <= 0 || (s.Load.Shape == Groups && s.Load.Off <= 0) {
		t.Fatalf("fleet: %+v: %v", s, err)
	}
	collectLess()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s)
		w.serve()
		if look != nil {
			look(w)
		}
		w.warm()
		w.conduct()
		for _, p := range w.procs {
			p.calls.Wait()
		}
		w.settle(&r)
		w.measure(&r)
	})
	return r
}

// warm starts the processes at different times, because events at the same instant have no fixed order.
func (w *world) warm() {
	spread := min(time.Second, w.s.Warm/2)
	if w.s.Cold {
		spread = coldSpread
	}
	begin := time.Now()
	w.start = begin.Add(w.s.Warm)
	rng := w.rng(forPhases, 0, 0)
	for i := range w.s.Processes {
		at := time.Duration((float64(i) + rng.Float64()) / float64(w.s.Processes) * float64(spread))
		time.Sleep(time.Until(begin.Add(at)))
		w.launch(i)
	}
}

// coldSpread is the time in which all processes of a cold fleet start: one tick or less between two.
const coldSpread = 50 * time.Millisecond

func (s Scenario) withDefaults() Scenario {
	s.Kind, s.Load.Shape = cmp.Or(s.Kind, Auto), cmp.Or(s.Load.Shape, Steady)
	switch {
	case s.Cold:
		s.Warm = 0
	case s.Warm == 0:
		s.Warm = min(3*time.Second+2*s.Limit.TimeToFull(), time.Minute)
	}
	return s
}

// interval returns T.
func (s Scenario) interval() time.Duration { return cmp.Or(s.Interval, 50*time.Millisecond) }
