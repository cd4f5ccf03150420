package rls

import (
	"context"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// answered returns a verdict about a limit of 10 per minute.
func answered(over bool, left int64) verdict {
	limit := &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 10, Unit: pb.RateLimitResponse_RateLimit_MINUTE}
	v := verdict{
		state: asked, limit: limit, algorithm: hybridlimit.AlgFixedWindow,
		item: itemOf("", limit, hybridlimit.FixedWindow(10, 60e9)), over: over, remaining: left, reset: 30, holds: true,
	}
	if over {
		v.retry = 30
	}
	return v
}

func headersOf(res *pb.RateLimitResponse) string {
	var lines []string
	for _, h := range res.GetResponseHeadersToAdd() {
		lines = append(lines, h.GetKey()+": "+h.GetValue())
	}
	return strings.Join(lines, "\n")
}

func TestHeaders(t *testing.T) {
	dark := answered(true, 0)
	dark.shadow = true
	apart := answered(false, 3)
	apart.holds = false
	named := answered(false, 7)
	it, _ := ratelimitheader.NewItem("burst", hybridlimit.FixedWindow(20, 3600e9))
	named.item = &it
	never := answered(true, 0)
	never.retry = 0
	for name, c := range map[string]struct {
		o        Options
		verdicts []verdict
		want     string
	}{
		"admitted": {Options{}, []verdict{answered(false, 4)}, `RateLimit-Policy: "10/minute";q=10;w=60
RateLimit: "10/minute";r=4;t=30`},
		"two": {Options{}, []verdict{answered(false, 4), named}, `RateLimit-Policy: "10/minute";q=10;w=60, "burst";q=20;w=3600
RateLimit: "10/minute";r=4;t=30, "burst";r=7;t=1260`},
		"denied": {Options{}, []verdict{named, answered(true, 0)}, `RateLimit-Policy: "burst";q=20;w=3600, "10/minute";q=10;w=60
RateLimit: "10/minute";r=0;t=30
Retry-After: 30`},
		"for ever": {Options{NoDraftHeaders: true}, []verdict{never}, ``},
		"for ever, beside a wait": {Options{}, []verdict{answered(true, 0), never}, `RateLimit-Policy: "10/minute";q=10;w=60, "10/minute";q=10;w=60
RateLimit: "10/minute";r=0, "10/minute";r=0`},
		"shadow and fallback": {Options{}, []verdict{dark, apart}, ``},
		"global shadow": {Options{Shadow: true}, []verdict{answered(true, 0)}, `RateLimit-Policy: "10/minute";q=10;w=60
RateLimit: "10/minute";r=0;t=30`},
		"legacy": {Options{NoDraftHeaders: true, LegacyHeaders: true, LimitHeader: "L", RemainingHeader: "R", ResetHeader: "T"}, []verdict{answered(false, 4), named, {}}, `L: 10
R: 4
T: 30`},
		"nothing": {Options{LegacyHeaders: true}, []verdict{{}, {state: unlimited}}, ``},
	} {
		got := headersOf(compose(request("d", desc()), c.verdicts, &c.o))
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestStatuses(t *testing.T) {
	res := compose(request("d"), []verdict{{}, {state: unlimited}, {state: replaced}, answered(true, 3), answered(false, 1<<40)}, &Options{NoDraftHeaders: true})
	text, err := protojson.MarshalOptions{}.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"overallCode":"OVER_LIMIT","statuses":[{"code":"OK"},{"code":"OK","limitRemaining":4294967295},{"code":"OK"},` +
		`{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":10,"unit":"MINUTE"},"durationUntilReset":"30s"},` +
		`{"code":"OK","currentLimit":{"requestsPerUnit":10,"unit":"MINUTE"},"limitRemaining":4294967295,"durationUntilReset":"30s"}]}`
	if got := strings.ReplaceAll(string(text), " ", ""); got != want { // protojson puts spaces at random
		t.Errorf("%s", text)
	}
}

func TestMetadata(t *testing.T) {
	s := newService(t, modeRules, Options{Metadata: true})
	req := request("shop", desc("budget", "a", "x", "y"), hits(desc("budget", "a"), 3), nil)
	req.HitsAddend = 2
	res, err := s.ShouldRateLimit(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"descriptors":[{"entries":["budget=a","x=y"]},{"entries":["budget=a"],"hitsAddend":3}],"domain":"shop","hitsAddend":2}`
	text, _ := protojson.Marshal(res.GetDynamicMetadata())
	if got := strings.ReplaceAll(string(text), " ", ""); got != want {
		t.Errorf("%s", got)
	}
}

// TestMetadataOfRules merges the metadata of the rules that admit, in their order. The first one wins, and a rule keeps
// its own.
func TestMetadataOfRules(t *testing.T) {
	s := newService(t, `
domain: shop
descriptors:
- {key: one, metadata: {tier: gold, deep: {a: 1}}, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: two, metadata: {tier: free, deep: {a: 2, b: 3}, more: [x]}, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: dark, shadow_mode: true, metadata: {dark: true}, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: free, metadata: {free: true}, rate_limit: {unlimited: true}}
- {key: detailed, detailed_metric: true, metadata: {detailed: true}, rate_limit: {unit: day, requests_per_unit: 9}}
`, Options{Metadata: true})
	req := request("shop", desc("one", "x"), desc("two", "x"), desc("dark", "x"), desc("free", "x"), desc("detailed", "x"), desc("unknown", "x"))
	both := `{"dark":true,"deep":{"a":1,"b":3},"detailed":true,"more":["x"],"tier":"gold"}`
	for i, want := range []string{both, both, `{"dark":true,"deep":{"a":2,"b":3},"detailed":true,"more":["x"],"tier":"free"}`} {
		res, err := s.ShouldRateLimit(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := protojson.Marshal(res.GetDynamicMetadata().GetFields()["metadata"])
		if got := strings.ReplaceAll(string(text), " ", ""); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
}

// An answer must not change with later calls: its messages belong to the client, except
// the limits of the rules, which never change.
func TestAnswersStay(t *testing.T) {
	s := newService(t, modeRules, Options{Metadata: true, LegacyHeaders: true})
	req := request("shop", desc("many", "a"), desc("many", "b"), desc("dark", "c"))
	first, err := s.ShouldRateLimit(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	kept := proto.Clone(first)
	for range 5 {
		ask(t, s, req)
	}
	if !proto.Equal(kept, first) {
		t.Errorf("%v\n%v", kept, first)
	}
}

// FuzzShouldRateLimit sends any request. Each has an answer with a status for each
// descriptor, or an error of gRPC.
func FuzzShouldRateLimit(f *testing.F) {
	s := newService(f, modeRules, Options{Metadata: true, LegacyHeaders: true, MaxDescriptors: 10})
	for _, c := range modeCases {
		for _, one := range c.steps {
			b, err := proto.Marshal(one.req)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var req pb.RateLimitRequest
		if proto.Unmarshal(b, &req) != nil {
			return
		}
		res, err := s.ShouldRateLimit(context.Background(), &req)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "rpc error: code = InvalidArgument") {
				t.Error(err)
			}
			return
		}
		if len(res.GetStatuses()) != len(req.GetDescriptors()) {
			t.Errorf("%v", res)
		}
		over := false
		for _, one := range res.GetStatuses() {
			over = over || one.GetCode() == pb.RateLimitResponse_OVER_LIMIT
		}
		if denied := res.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT; denied && !over {
			t.Errorf("%v", res)
		}
		if _, err := proto.Marshal(res); err != nil {
			t.Error(err)
		}
	})
}
