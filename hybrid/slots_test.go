package hybrid_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestQueueOfAFleet checks that a fleet that shares a queue never forwards faster than the
// queue leaks, and forwards about as fast while enough calls come. Under load it takes most
// admitted units from blocks of slots.
func TestQueueOfAFleet(t *testing.T) {
	t.Parallel()
	const rate, burst = 200, 400
	span := time.Duration(testenv.Runs(5, 10)) * time.Second
	for _, tc := range []struct {
		n    int
		load float64 // of the rate
		mode hybrid.Mode
		ops  float64 // per admission, at most
	}{
		{1, 3, hybrid.ModeAuto, 1.2},
		{4, 0.5, hybrid.ModeAuto, 1.1},
		{4, 1.2, hybrid.ModeAuto, 0.5},
		{4, 3, hybrid.ModeAuto, 0.5},
		{4, 3, hybrid.ModeStrict, 0.5},
		{4, 3, hybrid.ModeDeferred, 5},
		{20, 2, hybrid.ModeAuto, 0.9},
	} {
		t.Run(fmt.Sprintf("%d at %g %v", tc.n, tc.load, tc.mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				ls := make([]*hybrid.Limiter, tc.n)
				for i := range ls {
					ls[i] = newLimiter(t, b.Client(nil), hybridlimit.LeakyQueue(rate, time.Second, burst), hybrid.Config{Mode: tc.mode})
				}
				time.Sleep(3 * time.Second)
				var forwards []int64 // ns
				start := time.Now()
				gap := time.Duration(float64(time.Second) / rate / tc.load)
				for i := 0; time.Since(start) < span; i++ {
					res := ask(t, ls[i%tc.n], "k", 1)
					if res.Allowed {
						forwards = append(forwards, int64(time.Since(start)+res.Delay))
					}
					time.Sleep(gap)
				}
				slices.Sort(forwards)
				// Each answer was up to a round trip old.
				for i, at := range forwards {
					for _, k := range []int{1, 2, 5, 20, 100} {
						if j := i - k; j >= 0 {
							if least := time.Duration(k)*time.Second/rate - 3*time.Millisecond; time.Duration(at-forwards[j]) < least {
								t.Fatalf("%d units within %v, want at least %v", k+1, time.Duration(at-forwards[j]), least)
							}
						}
					}
				}
				last := time.Duration(forwards[len(forwards)-1]) // the units queued at the end are forwarded until then
				want := min(rate*last.Seconds(), rate*tc.load*span.Seconds())
				if got := float64(len(forwards)); got < 0.9*want {
					t.Errorf("%v forwards, want about %v", got, want)
				}
				var ops, expired int64
				for _, l := range ls {
					s := l.Stats()
					ops += s.Ops
					expired += s.Expired + s.Lost
				}
				if per := float64(ops) / float64(len(forwards)); per > tc.ops {
					t.Errorf("%.2f ops per admission, want at most %v", per, tc.ops)
				}
				t.Logf("%d forwards of %.0f, %.2f ops per admission, %d slots lost", len(forwards), want, float64(ops)/float64(len(forwards)), expired)
				shutdown(t, ls...)
			})
		})
	}
}

// TestQueueInFallback checks that each process has its part of the queue while Redis does not
// answer, and that Delay is the time until that part serves the call.
func TestQueueInFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		for _, tc := range []struct {
			fallback hybrid.Fallback
			want     []time.Duration
		}{
			{hybrid.FallbackShare, []time.Duration{0, 200 * time.Millisecond, -1}},
			{hybrid.FallbackFull, []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond, -1}},
			{hybrid.FallbackAllowAll, []time.Duration{0, 0, 0, 0, 0, 0, 0}},
			{hybrid.FallbackDenyAll, []time.Duration{-1}},
		} {
			link := b.Link() // an answer of Redis would decide the next call
			link.Pause()
			l := newLimiter(t, link.Client(nil), hybridlimit.LeakyQueue(10, time.Second, 5), hybrid.Config{
				Name: fmt.Sprint(tc.fallback), Fallback: tc.fallback, MaxWait: -1, Hub: hybrid.HubConfig{FleetSize: 2},
			})
			for i, want := range tc.want {
				res := ask(t, l, "k", 1)
				if res.Allowed != (want >= 0) || res.Allowed && (res.Delay-want).Abs() > time.Microsecond || res.Source != hybridlimit.SourceFallback {
					t.Errorf("%v: call %d: %+v, want a delay of %v", tc.fallback, i, res, want)
				}
			}
			link.Resume()
			shutdown(t, l)
		}
	})
}
