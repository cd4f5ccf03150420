package rls

import (
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// TestCheckAndReport looks before calls and books after them, in all algorithms.
func TestCheckAndReport(t *testing.T) {
	for _, o := range []Options{{}, {AskCosts: true}, {StrictCompat: true}} {
		virtually(func(t *testing.T) {
			o.Limiter.Mode = hybrid.ModeExact
			s := inMemory(t, tokenRules("")+"- {key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}\n", o)
			both := func(of func(*pb.RateLimitRequest) (*pb.RateLimitResponse, error), req *pb.RateLimitRequest) string {
				res, err := of(req)
				if err != nil {
					return err.Error()
				}
				return short(res)
			}
			check := func(req *pb.RateLimitRequest) string {
				return both(func(r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) { return s.Check(t.Context(), r) }, req)
			}
			report := func(req *pb.RateLimitRequest) string {
				return both(func(r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) { return s.Report(t.Context(), r) }, req)
			}
			for _, key := range []string{"fixed-window", "sliding-window", "sliding-log", "token-bucket", "leaky-bucket"} {
				one := func() *pb.RateLimitRequest { return request("shop", desc(key, "a")) }
				for i, step := range []struct{ got, want string }{
					{check(one()), "ok: ok(1000)"},
					{check(hitsOf(one(), 1001)), "over: over(0)"}, // it would not fit
					{check(request("shop", back(desc(key, "a"), 5))), "ok: ok(1000)"},
					{report(one()), "ok: ok(999)"},
					{report(hitsOf(one(), 998)), "ok: ok(1)"},
					{check(hitsOf(one(), 1)), "ok: ok(1)"},
					{check(hitsOf(one(), 2)), "over: over(0)"},
					{report(hitsOf(one(), 5)), "over: over(0)"},
					{check(one()), "over: over(0)"},
				} {
					if step.got != step.want {
						t.Errorf("%+v: %s, step %d: %s, want %s", o, key, i, step.got, step.want)
					}
				}
			}
			// A report of one unit is booked beside a rule that denies.
			if got := report(request("shop", desc("fixed-window", "b"), desc("deny0", "a"))); got != "over: ok(999) over(0)" {
				t.Errorf("%+v: beside a rule that denies: %s", o, got)
			}
			if got := check(request("shop", desc("q", "a"), desc("fixed-window", "b"))); got != "ok: ok(1) ok(999)" {
				t.Errorf("%+v: with a quota: %s", o, got)
			}
			report(request("shop", desc("q", "a")))
			if got := check(request("shop", desc("q", "a"), desc("fixed-window", "b"))); got != "over: over(0) ok(999)" {
				t.Errorf("%+v: with a used quota: %s", o, got)
			}
			if got := check(&pb.RateLimitRequest{}); !strings.Contains(got, "InvalidArgument") {
				t.Errorf("an empty request: %s", got)
			}
		})(t)
	}
}
