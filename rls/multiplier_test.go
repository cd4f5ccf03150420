package rls

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestUnitMultiplier has windows of five minutes: the answer, the headers and the end of the window.
func TestUnitMultiplier(t *testing.T) {
	virtually(func(t *testing.T) {
		s := inMemory(t, "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 3}}\n", Options{LegacyHeaders: true})
		time.Sleep(2 * time.Minute)
		req := request("shop", desc("user", "a"))
		for i, want := range []string{"ok: ok(2)", "ok: ok(1)", "ok: ok(0)", "over: over(0)"} {
			res, err := s.ShouldRateLimit(context.Background(), req)
			if err != nil {
				t.Fatal(err)
			}
			if got := short(res); got != want {
				t.Errorf("request %d: %s, want %s", i, got, want)
			}
			one := res.GetStatuses()[0]
			if l := one.GetCurrentLimit(); l.GetUnitMultiplier().GetValue() != 5 || l.GetRequestsPerUnit() != 3 || one.GetDurationUntilReset().GetSeconds() != 180 {
				t.Errorf("request %d: %v", i, one)
			}
			headers := map[string]string{}
			for _, h := range res.GetResponseHeadersToAdd() {
				headers[h.GetKey()] = h.GetValue()
			}
			if headers["RateLimit-Policy"] != `"3/5minute";q=3;w=300` || headers["RateLimit-Reset"] != "180" {
				t.Errorf("request %d: %v", i, headers)
			}
			if left := fmt.Sprint(2 - i); i < 3 && headers["RateLimit-Remaining"] != left {
				t.Errorf("request %d: %v, want %s", i, headers, left)
			}
		}
		time.Sleep(3*time.Minute + time.Second)
		if got := ask(t, s, req); got != "ok: ok(2)" {
			t.Errorf("in the next window: %s", got)
		}
	})(t)
}
