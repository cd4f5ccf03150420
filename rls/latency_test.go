package rls

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// away returns a service whose Redis is a round trip away.
func away(t testing.TB, roundTrip time.Duration, yaml string, o Options) *Service {
	t.Helper()
	link := redistest.NewBubble(t).Link()
	link.Latency(roundTrip/2, roundTrip/2)
	pool := func(o *redis.Options) { o.PoolSize = 1000 } // a wait for a connection has a timer that bubbles must not share
	return newServiceOn(t, link.Client(pool), yaml, o)
}

// TestManyCostsWaitTogether reports many costs at once. Each is above what is left, so that it takes up to three round
// trips.
//
// Regression: they were booked one after the other, and a thousand took 30 s.
func TestManyCostsWaitTogether(t *testing.T) {
	for _, algorithm := range []string{"fixed window", "sliding window", "sliding log", "token bucket"} {
		t.Run(algorithm, virtually(func(t *testing.T) {
			s := away(t, 10*time.Millisecond, "domain: shop\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 10, algorithm: "+algorithm+"}}\n", Options{})
			ask(t, s, request("shop", desc("k", "first")))
			req := request("shop")
			for i := range 300 {
				req.Descriptors = append(req.Descriptors, hits(desc("k", fmt.Sprint(i)), 20))
			}
			began := time.Now()
			got := ask(t, s, req)
			if took := time.Since(began); took > 300*time.Millisecond { // three round trips for each message of up to 64 costs
				t.Errorf("300 costs took %v, want about 150 ms, and not 9 s", took)
			}
			if strings.Count(got, "over(0)") != 300 {
				t.Errorf("%.100s", got)
			}
			for _, i := range []string{"0", "150", "299"} {
				if got := ask(t, s, request("shop", hits(desc("k", i), 0))); got != "over: over(0)" {
					t.Errorf("then %s has %s", i, got)
				}
			}
		}))
	}
}

// TestQuotasAreLookedAtOnce asks just before a quota comes back. The request is denied, as it takes nothing.
//
// Regression: the quota was looked at again after it had denied, and the answer was OK.
func TestQuotasAreLookedAtOnce(t *testing.T) {
	virtually(func(t *testing.T) {
		o := Options{}
		o.Limiter.Mode = hybrid.ModeExact
		s := away(t, 20*time.Millisecond, `
domain: shop
descriptors:
- {key: p, rate_limit: {unit: year, requests_per_unit: 1000}}
- {key: q, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 1}}
`, o)
		passed, left := 0, 1000
		for i := range 60 {
			ask(t, s, request("shop", desc("q", "a"))) // used up
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second - time.Duration(i)*time.Millisecond)))
			if strings.HasPrefix(ask(t, s, request("shop", desc("p", "a"), desc("q", "a"))), "ok:") {
				passed++
			}
		}
		got := ask(t, s, request("shop", hits(desc("p", "a"), 0)))
		if want := fmt.Sprintf("ok: ok(%d)", left-passed); got != want {
			t.Errorf("%d requests passed, and then p has %s, want %s", passed, got, want)
		}
	})(t)
}
