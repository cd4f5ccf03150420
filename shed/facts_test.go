package shed_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"
)

// These tests hold the facts about failsafe-go on which decision 0048 rests. A
// version of failsafe-go with other facts fails them. The decision is then due for
// another look.

// TestFactNoPriorityIsExempt shows that a full queue of a prioritized limiter
// rejects the highest level too.
func TestFactNoPriorityIsExempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := adaptivelimiter.NewBuilder[any]().WithLimits(1, 1, 1).BuildPrioritized(adaptivelimiter.NewPrioritizer())
		var all sync.WaitGroup
		for range 4 { // one runs, three wait: the default queue is three times the limit
			all.Go(func() { l.AcquirePermitWithLevel(ctx, 0) })
		}
		synctest.Wait()
		if l.CanAcquirePermitWithLevel(499) {
			t.Error("level 499 is admitted beside a full queue")
		}
		cancel()
		all.Wait()
	})
}

// TestFactThePrioritizerHasNoHysteresis shows that one calibration moves the
// threshold from nothing to nearly all, and the next one back to nothing.
func TestFactThePrioritizerHasNoHysteresis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := adaptivelimiter.NewPrioritizer()
		l := adaptivelimiter.NewBuilder[any]().WithLimits(100, 100, 100).BuildPrioritized(p)
		var all sync.WaitGroup
		for i := range 400 {
			all.Go(func() { l.AcquirePermitWithLevel(ctx, i%500) })
		}
		synctest.Wait()
		p.Calibrate()
		if full := p.RejectionThreshold(); full < 350 {
			t.Errorf("threshold %d beside a full queue", full)
		}
		cancel() // all who wait leave
		all.Wait()
		p.Calibrate()
		if after := p.RejectionThreshold(); after != 0 {
			t.Errorf("threshold %d after the queue has emptied", after)
		}
	})
}

// TestFactTheBaselineDrifts shows that a limit rises again during an incident,
// because the baseline has learned the incident's times.
func TestFactTheBaselineDrifts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adaptivelimiter.NewBuilder[any]().WithLimits(1, 200, 100).Build()
		load(l, 20, 10*time.Millisecond, 20*time.Second)
		healthy := l.Limit()
		lowest := healthy
		for range 20 {
			load(l, 50, time.Second, 6*time.Second)
			lowest = min(lowest, l.Limit())
		}
		if end := l.Limit(); lowest >= healthy || end <= healthy {
			t.Errorf("limit %d healthy, %d at its lowest, %d after two minutes of 1 s a call", healthy, lowest, end)
		}
	})
}

// TestFactTheLimitIsCappedByWhatIsInFlight shows that an idle limiter does not
// keep a large limit.
func TestFactTheLimitIsCappedByWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adaptivelimiter.NewBuilder[any]().WithLimits(1, 200, 100).Build()
		load(l, 4, 10*time.Millisecond, 3*time.Minute)
		if n := l.Limit(); n != 20 {
			t.Errorf("limit %d beside 4 in flight, want 5 times that", n)
		}
	})
}

// TestFactTheCalibrationEndsLater shows that the goroutine of the calibrations is
// not awaited by its CancelFunc, and that a second call of it panics.
func TestFactTheCalibrationEndsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := adaptivelimiter.NewPrioritizer().ScheduleCalibrations(t.Context(), time.Second)
		synctest.Wait()
		stack := make([]byte, 1<<20)
		if !strings.Contains(string(stack[:runtime.Stack(stack, true)]), "ScheduleCalibrations") {
			t.Error("no goroutine")
		}
		stop()
		defer func() {
			if recover() == nil {
				t.Error("the second stop did not panic")
			}
		}()
		stop()
	})
}

// TestFactLevelsAreWholeShares shows the part of failsafe-go that this package
// uses: the level below which a share of the recorded calls lies.
func TestFactLevelsAreWholeShares(t *testing.T) {
	tracker := priority.NewLevelTracker(1000)
	for range 10 {
		for level := range 100 {
			tracker.RecordLevel(level)
		}
	}
	if level := tracker.GetLevel(0.3); level != 29 {
		t.Errorf("level %d, want 29", level)
	}
}

// load runs calls of one duration, as many at once as the limiter admits, at most n.
func load(l adaptivelimiter.AdaptiveLimiter[any], n int, each, total time.Duration) {
	var all sync.WaitGroup
	until := time.Now().Add(total)
	for range n {
		all.Go(func() {
			for time.Now().Before(until) {
				permit, ok := l.TryAcquirePermit()
				time.Sleep(each)
				if ok {
					permit.Record()
				}
			}
		})
	}
	all.Wait()
}
