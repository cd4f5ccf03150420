package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const floorRules = `
domain: shop
descriptors:
  - key: account
    rate_limit: {unit: year, requests_per_unit: 20}
    descriptors:
      - key: priority
        floor: 0.2
`

// The program with floors: a flood leaves units to critical calls, the pages show the floor, and a file with another floor takes
// effect and keeps the counts.
func TestFloors(t *testing.T) {
	dir := write(t, t.TempDir(), "a.yaml", floorRules)
	r := start(t, "-config", dir, "-redis", redistest.New(t).Addr())
	batch := entry("account", "a")
	batch.Entries = append(batch.Entries, entry("priority", "batch").Entries...)
	flood := func(want int) {
		t.Helper()
		for i := range want + 5 {
			if got := r.ask("shop", 0, batch).GetOverallCode() == pb.RateLimitResponse_OK; got != (i < want) {
				t.Fatalf("call %d of a flood that may have %d units: %v", i, want, got)
			}
		}
	}
	flood(16)
	for i := range 2 {
		if r.ask("shop", 0, entry("account", "a")).GetOverallCode() != pb.RateLimitResponse_OK {
			t.Errorf("critical call %d was denied", i)
		}
	}
	res, err := http.Post("http://"+r.on.HTTP+"/json", "application/json", strings.NewReader(
		`{"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"a"},{"key":"priority","value":"batch"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("/json answers %d", res.StatusCode)
	}
	want := "shop.account.priority: unit=YEAR requests_per_unit=20, shadow_mode: false, quota_mode: false, " +
		"limit: 20 per 8760h0m0s (fixed window), floor: 0.2 in the counts of shop.account\n"
	if _, text := r.get("/rlconfig"); !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if _, text := r.get("/metrics"); !strings.Contains(text, `ratelimit_service_rate_limit_within_limit{domain="shop",key1="account",key2="priority"} 16`) ||
		!strings.Contains(text, `rate_limiting_class="floor-0.2"`) {
		t.Error(text)
	}
	write(t, dir, "a.yaml", strings.Replace(floorRules, "0.2", "0.05", 1))
	redistest.Eventually(t, 30*time.Second, "the floor of the new file", func() bool {
		_, text := r.get("/rlconfig")
		return strings.Contains(text, "floor: 0.05")
	})
	flood(1) // of the 2 units that were left
	write(t, dir, "a.yaml", strings.Replace(floorRules, "0.2", "0.6", 1))
	redistest.Eventually(t, 30*time.Second, "the error is logged", func() bool {
		return strings.Contains(r.log.String(), "a.yaml:8: shop.account.priority.floor: must be a number from 0 to 0.5, and is 0.6")
	})
}
