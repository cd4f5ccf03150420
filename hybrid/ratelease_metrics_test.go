package hybrid_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestRateLeaseMetrics compares the series of docs/metrics.md with Stats, after leases, an eviction and an outage.
func TestRateLeaseMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		m := &metertest.Provider{}
		h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m, FleetSize: 1})
		hot, err := h.RateLeases(hybridlimit.TokenBucket(100, time.Second, 100), hybrid.RateLeaseConfig{Name: "hot", MaxKeys: 2})
		if err != nil {
			t.Fatal(err)
		}
		calls := func(n int) {
			for range n {
				ask(t, hot, "k", 1)
				time.Sleep(5 * time.Millisecond)
			}
		}
		calls(1000)
		b.Kill()
		calls(1200)
		b.Restart()
		calls(600)
		b.Kill()
		calls(1200)
		for i := range 5 {
			ask(t, hot, fmt.Sprint("other", i), 1)
		}
		ask(t, hot, "k", 101) // above the burst
		synctest.Wait()

		got, s := m.Collect(t), hot.Stats()
		want := func(name, attributes string, v int64) {
			t.Helper()
			at := "rate_limiting." + name + "{rate_limiting.policy=hot" + attributes + "}"
			if have, ok := got[at]; !ok || have != v {
				t.Errorf("%s is %d (%v), want %d", at, have, ok, v)
			}
		}
		for result, counts := range map[string]map[hybridlimit.Source]int64{"allowed": s.Allowed, "denied": s.Denied} {
			for src, n := range counts {
				want("decisions", fmt.Sprintf(",rate_limiting.result=%s,rate_limiting.source=%v", result, src), n)
			}
		}
		for fate, n := range map[string]int64{"admitted": s.Admitted, "paid": s.Paid, "dropped": s.Dropped} {
			want("units", ",rate_limiting.unit.fate="+fate, n)
		}
		want("keys", "", int64(s.Keys))
		want("evictions", "", int64(s.Evicted))
		want("owed", "", s.Owed)
		want("held", "", int64(s.Held))
		want("sync.ops", "", s.Ops)
		want("fleet.size", "", 1)
		if s.Allowed[hybridlimit.SourceRateLease] < 500 || s.Paid == 0 || s.Dropped == 0 || s.Owed == 0 || s.Evicted == 0 || s.Keys == 0 || s.Ops < 3 {
			t.Errorf("the calls have left a series at 0: %+v", s)
		}
		if err := hot.Close(); err != nil {
			t.Error(err)
		}
		for at := range m.Collect(t) {
			if strings.Contains(at, "=hot") {
				t.Errorf("%s is still observed after Close", at)
			}
		}
	})
}
