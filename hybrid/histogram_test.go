package hybrid_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const (
	overshootOf = "rate_limiting.overshoot{rate_limiting.policy=api}"
	stalenessOf = "rate_limiting.staleness{rate_limiting.policy=api}"
)

// near reports whether times in seconds are as wanted, to the ns.
func near(got []float64, want ...float64) bool {
	return slices.EqualFunc(got, want, func(g, w float64) bool { return math.Abs(g-w) < 1e-9 })
}

// TestOvershootAndStalenessAreRecorded lets two processes spend units that both
// views show. The syncs that follow record the overshoot, and the age of the
// views.
func TestOvershootAndStalenessAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var ls []*hybrid.Limiter
		var ms []*metertest.Provider
		for range 2 {
			m := &metertest.Provider{}
			ms = append(ms, m)
			ls = append(ls, newLimiter(t, b.Client(nil), still(20), hybrid.Config{
				Mode: hybrid.ModeDeferred, SyncEvery: 16, SyncInterval: 100 * time.Millisecond,
				Hub: hybrid.HubConfig{MeterProvider: m},
			}))
		}
		ready(t, ls...)
		time.Sleep(5 * time.Second) // neither process is new
		check := func(when string, i int, over []float64, ages ...float64) {
			t.Helper()
			synctest.Wait()
			if got := ms[i].Take(overshootOf); !slices.Equal(got, over) {
				t.Errorf("%s: process %d recorded overshoots %v, want %v", when, i, got, over)
			}
			if got := ms[i].Take(stalenessOf); !near(got, ages...) {
				t.Errorf("%s: process %d recorded views %v s old, want %v", when, i, got, ages)
			}
		}
		pass := func(l *hybrid.Limiter, n int64) {
			t.Helper()
			if res := ask(t, l, "k", n); !res.Allowed {
				t.Fatalf("%d units denied: %+v", n, res)
			}
		}
		pass(ls[0], 1)
		pass(ls[1], 1)
		check("without a view", 0, []float64{0})
		check("without a view", 1, []float64{0})

		time.Sleep(3 * time.Second)
		pass(ls[0], 16) // of 18 units, or 19 by its view; all of C, so it syncs at once
		check("within the limit", 0, []float64{0}, 3)
		time.Sleep(time.Second)
		pass(ls[1], 16) // of 2 units, or 18 by its view
		check("beyond the limit", 1, []float64{14}, 4)
		if s := ls[1].Stats(); s.Overshoot != 14 || s.Overshoots != 1 || s.Credit != 16 {
			t.Errorf("overshoot %d in %d syncs, with credit %d; want 14, 1, 16", s.Overshoot, s.Overshoots, s.Credit)
		}
		if got := ms[1].Collect(t)["rate_limiting.credit{rate_limiting.policy=api}"]; got != 16 {
			t.Errorf("credit %d, want 16", got)
		}

		time.Sleep(time.Second)
		pass(ls[0], 1) // of 2 units by its view; it syncs after T
		check("before T", 0, nil)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if got := ms[0].Take(stalenessOf); len(got) != 1 || got[0] < 2.07 || got[0] > 2.11 {
			t.Errorf("a sync after T recorded views %v s old, want 2 s + T, or up to 30 ms less", got)
		}
		check("deeper in debt", 0, []float64{15})
		for _, l := range ls {
			s := l.Stats()
			if s.Overshoot > (s.Fleet-1)*s.Credit || s.Overshoots != 1 {
				t.Errorf("overshoot %d in %d syncs, more than (%d-1)·%d", s.Overshoot, s.Overshoots, s.Fleet, s.Credit)
			}
		}

		// A direct call is an op too: it finds the debt, and has no view.
		ms = append(ms, &metertest.Provider{})
		exact := newLimiter(t, b.Client(nil), still(20), hybrid.Config{Mode: hybrid.ModeExact, Hub: hybrid.HubConfig{MeterProvider: ms[2]}})
		if res := ask(t, exact, "k", 1); res.Allowed {
			t.Errorf("admitted in debt: %+v", res)
		}
		check("exact", 2, []float64{15})
	})
}

func TestBucketsFit(t *testing.T) {
	m := &metertest.Provider{}
	newHub(t, nobody(t), hybrid.HubConfig{MeterProvider: m})
	for name, in := range m.Made {
		if (in.Kind == "histogram") != (len(in.Bounds) > 0) || !slices.IsSorted(in.Bounds) {
			t.Errorf("%s, a %s, has bounds %v", name, in.Kind, in.Bounds)
		}
	}
	over, stale := m.Made["rate_limiting.overshoot"].Bounds, m.Made["rate_limiting.staleness"].Bounds
	if over[0] != 0 || over[len(over)-1] < 1e7 { // a tenth of a burst of 10⁸ is debt that an alert has to see
		t.Errorf("overshoot has bounds %v, want 0 first and at least 1e7 last", over)
	}
	for _, at := range []float64{0.015, 0.02} { // alerts compare with MaxWait: between 10 and 25 ms a quantile would be a guess
		if took := m.Made["rate_limiting.sync.duration"].Bounds; !slices.Contains(took, at) {
			t.Errorf("durations have bounds %v: %v is not among them", took, at)
		}
	}
	if i, ok := slices.BinarySearch(stale, 0.05); !ok || i < 3 {
		t.Errorf("staleness has bounds %v, want T (0.05 s) and at least three below it", stale)
	}
}

// TestCostPerDecision checks the ops per decision of each limiter, and the
// messages per decision of the hub.
func TestCostPerDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		if h.Stats().MessagesPerDecision() != 0 || (hybrid.Stats{}).OpsPerDecision() != 0 {
			t.Error("the cost per decision is not 0 before the first decision")
		}
		exact := add(t, h, hybridlimit.PerSecond(5), hybrid.Config{Name: "exact", Mode: hybrid.ModeExact})
		local := add(t, h, hybridlimit.TokenBucket(1000, time.Second, 2000), hybrid.Config{Name: "local", Mode: hybrid.ModeDeferred})
		time.Sleep(5 * time.Second)
		for range 8 { // three are denied
			ask(t, exact, "k", 1)
		}
		for range 100 {
			ask(t, local, "k", 1)
		}
		time.Sleep(time.Second)
		e, l := exact.Stats(), local.Stats()
		if e.Decisions() != 8 || e.Ops != 8 || e.OpsPerDecision() != 1 {
			t.Errorf("exact: %d ops, %d decisions, %v", e.Ops, e.Decisions(), e.OpsPerDecision())
		}
		if l.Decisions() != 100 || l.Ops < 1 || l.Ops > 3 || l.OpsPerDecision() != float64(l.Ops)/100 {
			t.Errorf("local: %d ops, %d decisions, %v", l.Ops, l.Decisions(), l.OpsPerDecision())
		}
		exact.Close()
		s := h.Stats()
		if s.Decisions != 108 || s.MessagesPerDecision() != float64(s.Messages)/108 {
			t.Errorf("after one limiter was closed: %d decisions, %v", s.Decisions, s.MessagesPerDecision())
		}
		h.Close()
		if after := h.Stats().Decisions; after != 108 {
			t.Errorf("after Close: %d decisions", after)
		}
	})
}
