package rls

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// This file tests that named costs are booked.

// tokenRules has costs in all algorithms, and rules that deny.
func tokenRules(mode string) string {
	text := "domain: shop\ndescriptors:\n"
	for _, algorithm := range []string{"fixed window", "sliding window", "sliding log", "token bucket", "leaky bucket"} {
		text += fmt.Sprintf("- {key: %s, rate_limit: {unit: year, requests_per_unit: 1000, algorithm: %s}}\n",
			strings.ReplaceAll(algorithm, " ", "-"), algorithm)
	}
	for _, rule := range []string{"unit: year, requests_per_unit: 1", "unit: year, requests_per_unit: 0"} {
		text += fmt.Sprintf("- {key: deny%s, rate_limit: {%s}%s}\n", rule[len(rule)-1:], rule, mode)
	}
	return text
}

// TestCostsBesideARuleThatDenies books the cost of one descriptor while another one is over in some way, or is a quota or
// in shadow.
//
// Regression: nothing was booked in all these cases. A gateway that reports tokens after a response served 60 000 tokens
// of 20 000 a day, because the limit of a second was over.
func TestCostsBesideARuleThatDenies(t *testing.T) {
	deniers := map[string]func() *ratelimit.RateLimitDescriptor{
		"a cost above its limit": func() *ratelimit.RateLimitDescriptor { return hits(desc("deny1", "a"), 5) },
		"a look":                 func() *ratelimit.RateLimitDescriptor { return hits(desc("deny1", "used"), 0) },
		"a limit of 0":           func() *ratelimit.RateLimitDescriptor { return hits(desc("deny0", "a"), 1) },
		"a used limit":           func() *ratelimit.RateLimitDescriptor { return hits(desc("deny1", "used"), 1) },
		"without an addend":      func() *ratelimit.RateLimitDescriptor { return desc("deny1", "used") },
	}
	for _, mode := range []string{"", ", quota_mode: true", ", shadow_mode: true"} {
		for name, denier := range deniers {
			for _, own := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s%s, own %t", name, mode, own), virtually(func(t *testing.T) {
					o := Options{}
					o.Limiter.Mode = hybrid.ModeExact
					s := inMemory(t, tokenRules(mode), o)
					ask(t, s, request("shop", desc("deny1", "used")))
					for _, algorithm := range []string{"fixed-window", "sliding-window", "sliding-log", "token-bucket", "leaky-bucket"} {
						cost := desc(algorithm, "a")
						req := request("shop", cost, denier())
						if own {
							hits(cost, 300)
						} else {
							req.HitsAddend = 300
						}
						got := ask(t, s, req)
						if denies := !strings.Contains(mode, "shadow"); strings.HasPrefix(got, "over: ok(700) over") != denies || !strings.Contains(got, "ok(700)") {
							t.Errorf("%s: %s", algorithm, got)
						}
						if got := ask(t, s, request("shop", hits(desc(algorithm, "a"), 0))); got != "ok: ok(700)" {
							t.Errorf("%s: then %s", algorithm, got)
						}
					}
				}))
			}
		}
	}
}

// TestTokensOfADay has a gateway that looks before a call and reports 5000 tokens after it, once a second.
func TestTokensOfADay(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		for algorithm, want := range map[string]int{"fixed window": 4, "token bucket": 4} {
			t.Run(fmt.Sprint(algorithm, " ", mode), virtually(func(t *testing.T) {
				o := Options{}
				o.Limiter.Mode = mode
				s := inMemory(t, fmt.Sprintf(`
domain: llm
descriptors:
- {key: tpm, rate_limit: {unit: second, requests_per_unit: 1000, algorithm: %s}}
- {key: budget, rate_limit: {unit: day, requests_per_unit: 20000}}
`, algorithm), o)
				served := 0
				for range 30 {
					time.Sleep(time.Second)
					both := func(n uint64) string {
						return ask(t, s, request("llm", hits(desc("tpm", "t"), n), hits(desc("budget", "t"), n)))
					}
					if strings.HasPrefix(both(0), "ok:") {
						both(5000)
						served++
					}
				}
				if served < want || served > want+1 {
					t.Errorf("%d calls are served, want %d or %d", served, want, want+1)
				}
				if got := ask(t, s, request("llm", hits(desc("budget", "t"), 0))); got != "over: over(0)" {
					t.Errorf("then the budget is %s", got)
				}
			}))
		}
	}
}

// TestABucketPaysCostsLater reports more tokens than a bucket has. It goes into debt, of one burst at most, so that its
// calls are over for as long as the tokens need to come back.
func TestABucketPaysCostsLater(t *testing.T) {
	for _, algorithm := range []string{"token bucket", "leaky bucket"} {
		t.Run(algorithm, virtually(func(t *testing.T) {
			s := inMemory(t, "domain: llm\ndescriptors:\n- {key: tpm, rate_limit: {unit: second, requests_per_unit: 1000, burst: 5000, algorithm: "+
				algorithm+"}}\n", exactly(algorithm))
			tokens := 0
			for range 12 {
				if strings.HasPrefix(ask(t, s, request("llm", hits(desc("tpm", "t"), 0))), "ok:") {
					ask(t, s, request("llm", hits(desc("tpm", "t"), 5000)))
					tokens += 5000
				}
				time.Sleep(time.Second)
			}
			if most := 5000 + 12*1000 + 5000; tokens > most || tokens < 15_000 {
				t.Errorf("%d tokens in 12 s, want at most %d", tokens, most)
			}
			// However often a cost is reported, the bucket has a unit after twice its burst.
			for range 20 {
				ask(t, s, request("llm", hits(desc("tpm", "t"), 1<<50)))
			}
			time.Sleep(10100 * time.Millisecond / 2)
			if got := ask(t, s, request("llm", hits(desc("tpm", "t"), 0))); !strings.HasPrefix(got, "ok:") {
				t.Errorf("after one burst of debt: %s", got)
			}
		}))
	}
}

// TestNamedCostsOfAnyMix sends drawn requests, and compares what is left of each rule with two sentences: of a named cost
// min(left, told) is booked, and a request that is denied takes nothing else.
func TestNamedCostsOfAnyMix(t *testing.T) {
	rounds := 150
	if testenv.Long() {
		rounds = 3000
	}
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 40))
	virtually(func(t *testing.T) {
		o := Options{}
		o.Limiter.Mode = hybrid.ModeExact
		s := inMemory(t, `
domain: shop
descriptors:
- {key: a, rate_limit: {unit: year, requests_per_unit: 20}}
- {key: b, rate_limit: {unit: year, requests_per_unit: 30, algorithm: sliding window}}
- {key: c, rate_limit: {unit: year, requests_per_unit: 40, algorithm: sliding log}}
- {key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 25}}
- {key: r, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 15}}
- {key: s, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 25}}
`, o)
		limits := map[string]int64{"a": 20, "b": 30, "c": 40, "q": 25, "r": 15, "s": 25}
		for round := range rounds {
			value := fmt.Sprint("v", round)
			left := map[string]int64{}
			for k, n := range limits {
				left[k] = n
			}
			for range 12 {
				text, req := drawRequest(rng, value)
				told := expect(req, left)
				got := ask(t, s, req)
				if over := strings.HasPrefix(got, "over:"); over != told {
					t.Fatalf("round %d: %s: %s, want over %t", round, text, got, told)
				}
				for k := range limits {
					want := fmt.Sprintf("ok: ok(%d)", left[k])
					if left[k] == 0 {
						if want = "over: over(0)"; k == "s" {
							want = "ok: ok(0)"
						}
					}
					if got := ask(t, s, request("shop", hits(desc(k, value), 0))); got != want {
						t.Fatalf("round %d: after %s, %s has %s, want %s", round, text, k, got, want)
					}
				}
			}
		}
	})(t)
}

// drawRequest draws a request with each rule at most once.
func drawRequest(rng *rand.Rand, value string) (string, *pb.RateLimitRequest) {
	req := request("shop")
	if rng.IntN(3) == 0 {
		req.HitsAddend = rng.Uint32N(9)
	}
	text := fmt.Sprint("addend ", req.GetHitsAddend())
	for _, k := range []string{"a", "b", "c", "q", "r", "s"} {
		if rng.IntN(2) == 0 {
			continue
		}
		d := desc(k, value)
		if rng.IntN(2) == 0 {
			hits(d, rng.Uint64N(12))
		}
		req.Descriptors = append(req.Descriptors, d)
		text += fmt.Sprintf(" %s %v", k, d.GetHitsAddend())
	}
	if len(req.Descriptors) == 0 {
		req.Descriptors = append(req.Descriptors, desc("a", value))
		text += " a"
	}
	return text, req
}

// expect takes the units of a request, and reports whether it is over. It knows nothing of the code under test.
func expect(req *pb.RateLimitRequest, left map[string]int64) (over bool) {
	type ask struct {
		key string
		n   int64
	}
	var plain []ask
	quotas, used := 0, 0
	deny := func(key string) {
		switch key {
		case "q", "r":
			used++
		case "s":
		default:
			over = true
		}
	}
	for _, d := range req.GetDescriptors() {
		key, n, named := d.GetEntries()[0].GetKey(), max(1, int64(req.GetHitsAddend())), req.GetHitsAddend() > 1
		if own := d.GetHitsAddend(); own != nil {
			n, named = int64(own.GetValue()), own.GetValue() > 0
		}
		if key == "q" || key == "r" {
			quotas++
		}
		if max(n, 1) > left[key] {
			deny(key)
		}
		if named {
			left[key] -= min(n, left[key])
		} else if n > 0 {
			plain = append(plain, ask{key, n})
		}
	}
	over = over || quotas > 0 && used == quotas
	for _, p := range plain {
		if !over && left[p.key] >= p.n {
			left[p.key] -= p.n
		}
	}
	return over
}

// TestACostIsBookedForACallerThatLeft reports a cost with a context that has ended.
func TestACostIsBookedForACallerThatLeft(t *testing.T) {
	virtually(func(t *testing.T) {
		s := inMemory(t, modeRules, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			_, _ = s.ShouldRateLimit(ctx, request("shop", hits(desc("many", "a"), 4), desc("user", "a")))
		}
		if got := ask(t, s, request("shop", hits(desc("many", "a"), 0), hits(desc("user", "a"), 0))); got != "ok: ok(2) ok(2)" {
			t.Errorf("then %s", got)
		}
	})(t)
}
