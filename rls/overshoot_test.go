package rls

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestOvershoot checks that a rule gives no units before Redis knows of them, unless it has an overshoot.
func TestOvershoot(t *testing.T) {
	s := newService(t, `
domain: shop
descriptors:
  - key: exact
    rate_limit: {unit: hour, requests_per_unit: 1000}
  - key: none
    rate_limit: {unit: hour, requests_per_unit: 1000, overshoot: 0}
  - key: early
    rate_limit: {unit: hour, requests_per_unit: 1000, overshoot: 0.1}
`, Options{})
	credit := func(key string) int64 {
		t.Helper()
		d := desc(key, "a")
		if _, err := s.ShouldRateLimit(t.Context(), request("shop", d)); err != nil {
			t.Fatal(err)
		}
		m, _ := s.Rules().Find("shop", d)
		r := s.state.Load().rules[m.Rule]
		in, err := r.limiter.Inspect(t.Context(), r.prefix+m.Key)
		if err != nil {
			t.Fatal(err)
		}
		return in.Credit
	}
	redistest.Eventually(t, 20*time.Second, "the fleet is counted", func() bool { return credit("early") == 100 })
	for _, key := range []string{"exact", "none"} {
		if c := credit(key); c != 0 {
			t.Errorf("%s: %d units before Redis knows", key, c)
		}
	}
}
