package debug_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybrid/debug"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestKinds shows limiters of calls in flight and of leased rates beside those of rates, in the list and for a key.
func TestKinds(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Bubble, h *hybrid.Hub) {
		running, err := h.Concurrency(hybridlimit.Concurrent(20), hybrid.ConcurrencyConfig{Name: "running"})
		if err != nil {
			t.Fatal(err)
		}
		fast, err := h.RateLeases(hybridlimit.PerSecond(100), hybrid.RateLeaseConfig{Name: "fast"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		permit, res, err := running.Acquire(t.Context(), alice)
		if err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
		defer permit.Release()
		for range 30 {
			if _, err := fast.Allow(t.Context(), alice); err != nil {
				t.Fatal(err)
			}
		}
		for query, wants := range map[string][]string{
			"": {
				"\napi: ", "\nhot: ", "\nrunning: 20 concurrent", "  permits  1 used, ", "  allowed  1 by ", "\nfast: leased rates, 100 per 1s, ", "  units    0 owed, 0 dropped, largest debt 0\n",
				" units in hand\n",
			},
			"limiter=running&key=alice%40example.com": {
				"a call for 1 permit of ", "limiter     running: 20 concurrent, mode auto\n", `key         "alice@example.com", key_digest `, "permits     1 used, ", "switch      normal\n", "breaker     closed\n",
				"fleet       1 processes\n", "member until",
			},
			"limiter=fast&key=alice%40example.com": {
				"a call for 1 unit of ", "limiter     fast: 100 per 1s, burst 100 (token bucket), leased rates\n", `key         "alice@example.com", key_digest `, "owed        0 units, by the fallback\n", "switch      normal\n",
			},
			"limiter=fast&user=nobody": {"\nmemory      this process knows nothing of the key"},
		} {
			status, body, _ := do(t, debug.Handler(h), http.MethodGet, query, "")
			for _, want := range wants {
				if status != http.StatusOK || !strings.Contains(plain(body), plain(want)) {
					t.Errorf("%q: %d, no %q in\n%s", query, status, want, body)
				}
			}
			if query == "" && strings.Contains(body, alice) {
				t.Errorf("the list shows a key:\n%s", body)
			}
		}
		for _, name := range []string{"running", "fast"} {
			status, body, _ := do(t, debug.Handler(h), http.MethodGet, "limiter="+name+"&key=k&redis=1", "")
			if status != http.StatusBadRequest || !strings.Contains(body, `redis ("1") must be absent for the limiter "`+name+`"`) {
				t.Errorf("%s: %d, %s", name, status, body)
			}
		}
		var got struct {
			Calls []struct{ Running int64 } `json:"concurrency_limiters"`
			Rates []struct{ Name string }   `json:"rate_lease_limiters"`
		}
		_, body, _ := do(t, debug.Handler(h), http.MethodGet, "format=json", "")
		if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Calls) != 1 || got.Calls[0].Running != 1 || len(got.Rates) != 1 || got.Rates[0].Name != "fast" {
			t.Errorf("%v: %+v in %s", err, got, body)
		}
		var key struct{ Policy, Outcome string }
		_, body, _ = do(t, debug.Handler(h), http.MethodGet, "format=json&limiter=fast&key=alice%40example.com", "")
		if err := json.Unmarshal([]byte(body), &key); err != nil || key.Policy != "fast" || key.Outcome == "" {
			t.Errorf("%v: %+v in %s", err, key, body)
		}
	})
}

// plain returns a text with single spaces.
func plain(text string) string { return strings.Join(strings.Fields(text), " ") }
