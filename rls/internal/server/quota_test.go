package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const quotaRules = `
domain: shop
descriptors:
  - key: tenant
    descriptors:
      - key: path
        rate_limit: {unit: second, requests_per_unit: 1000}
  - {key: quiet, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: none, rate_limit: {unlimited: true}}
  - {key: over, rate_limit: {unit: second, requests_per_unit: 0}}
`

// quotas opens a stream.
func (r *running) quotas() pb.RateLimitQuotaService_StreamRateLimitQuotasClient {
	r.t.Helper()
	stream, err := pb.NewRateLimitQuotaServiceClient(r.conn).StreamRateLimitQuotas(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return stream
}

// used is a report about one bucket.
func used(allowed, denied uint64, elapsed time.Duration, entries ...string) *pb.RateLimitQuotaUsageReports_BucketQuotaUsage {
	id := &pb.BucketId{Bucket: map[string]string{}}
	for i := 0; i < len(entries); i += 2 {
		id.Bucket[entries[i]] = entries[i+1]
	}
	return &pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: id, TimeElapsed: durationpb.New(elapsed), NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}
}

// report sends a report, and returns the strategies by bucket.
func report(
	stream pb.RateLimitQuotaService_StreamRateLimitQuotasClient, domain string, usages ...*pb.RateLimitQuotaUsageReports_BucketQuotaUsage,
) (map[string]*typev3.RateLimitStrategy, error) {
	if err := stream.Send(&pb.RateLimitQuotaUsageReports{Domain: domain, BucketQuotaUsages: usages}); err != nil {
		_, err = stream.Recv()
		return nil, err
	}
	res, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	all := map[string]*typev3.RateLimitStrategy{}
	for _, a := range res.GetBucketAction() {
		if ttl := a.GetQuotaAssignmentAction().GetAssignmentTimeToLive().AsDuration(); ttl < 10*time.Second || ttl > time.Minute {
			return nil, fmt.Errorf("an assignment holds for %v", ttl)
		}
		all[fmt.Sprint(a.GetBucketId().GetBucket())] = a.GetQuotaAssignmentAction().GetRateLimitStrategy()
	}
	return all, nil
}

// TestQuotas has two Envoys that report to a server, beside calls for the same rules.
func TestQuotas(t *testing.T) {
	addr := redistest.New(t).Addr()
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", quotaRules), "-redis", addr, "-rlqs")
	one := r.quotas()
	all, err := report(one, "shop", used(1, 0, 0, "path", "/", "tenant", "a"), used(1, 0, 0, "quiet", "x"), used(1, 0, 0, "none", "x"),
		used(1, 0, 0, "over", "x"), used(1, 0, 0, "unknown", "x"))
	if err != nil {
		t.Fatal(err)
	}
	for bucket, want := range map[string]typev3.RateLimitStrategy_BlanketRule{
		"map[quiet:x]": typev3.RateLimitStrategy_ALLOW_ALL, "map[none:x]": typev3.RateLimitStrategy_ALLOW_ALL,
		"map[over:x]": typev3.RateLimitStrategy_DENY_ALL, "map[unknown:x]": typev3.RateLimitStrategy_ALLOW_ALL,
	} {
		if s := all[bucket]; s.GetStrategy() == nil || s.GetTokenBucket() != nil || s.GetBlanketRule() != want {
			t.Errorf("%s: %v, want %v", bucket, s, want)
		}
	}
	if b := all["map[path:/ tenant:a]"].GetTokenBucket(); b.GetTokensPerFill().GetValue() != 980 || b.GetMaxTokens() != 98 ||
		b.GetFillInterval().AsDuration() != time.Second {
		t.Errorf("the first Envoy: %v", all)
	}
	// All slices are taken, so the second Envoy waits for some of them. Another tenant has a limit of its own.
	all, err = report(r.quotas(), "shop", used(1, 0, 0, "path", "/", "tenant", "a"), used(1, 0, 0, "path", "/", "tenant", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if s := all["map[path:/ tenant:a]"]; s.GetStrategy() == nil || s.GetBlanketRule() != typev3.RateLimitStrategy_DENY_ALL {
		t.Errorf("the second Envoy: %v", s)
	}
	if s := all["map[path:/ tenant:b]"]; s.GetTokenBucket().GetTokensPerFill().GetValue() != 980 {
		t.Errorf("another tenant: %v", s)
	}
	// The calls of the other protocol have counts of their own.
	if res := r.ask("shop", 1, entry("over", "x")); res.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
		t.Errorf("a call: %v", res)
	}
	// The end of the server ends the streams, and gives the slices to others.
	if err := r.end(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if _, err := one.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestDeafEnvoy has an Envoy that reports, and reads no answer. The server ends all the same.
func TestDeafEnvoy(t *testing.T) {
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", quotaRules), "-rlqs", "-drain", "100ms")
	var many []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage
	for i := range 1000 {
		many = append(many, used(1, 0, 0, "none", fmt.Sprint(i)))
	}
	deaf := r.quotas()
	go func() {
		for err := error(nil); err == nil; {
			err = deaf.Send(&pb.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: many})
		}
	}()
	if _, err := report(r.quotas(), "shop", used(1, 0, 0, "none", "x")); err != nil {
		t.Errorf("another Envoy: %v", err)
	}
	time.Sleep(200 * time.Millisecond) // until the deaf one's window is full, most likely
	if err := r.end(); err != nil {
		t.Errorf("the end: %v", err)
	}
}

func TestNoQuotas(t *testing.T) {
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", quotaRules))
	if _, err := report(r.quotas(), "shop", used(1, 0, 0, "none", "x")); status.Code(err) != codes.Unimplemented {
		t.Errorf("without -rlqs: %v", err)
	}
}

// TestBadReports has reports that end a stream, and large ones that do not.
func TestBadReports(t *testing.T) {
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", quotaRules), "-rlqs")
	many := func(n int) (all []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage) {
		for i := range n {
			all = append(all, used(1, 0, 0, "path", "/", "tenant", fmt.Sprint(i)))
		}
		return all
	}
	nine := used(1, 0, 0)
	for i := range 9 {
		nine.BucketId.Bucket[fmt.Sprint(i)] = "x"
	}
	bad := used(1, 0, 0, "none", "x")
	bad.TimeElapsed = &durationpb.Duration{Seconds: 1, Nanos: -5}
	for name, c := range map[string]struct {
		domain string
		usages []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage
		code   codes.Code
		text   string
	}{
		"no domain":     {"", many(1), codes.InvalidArgument, "domain"},
		"no entries":    {"shop", append(many(1), used(1, 0, 0)), codes.InvalidArgument, "must have entries"},
		"no bucket":     {"shop", []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{{}}, codes.InvalidArgument, "must have entries"},
		"nine entries":  {"shop", append(many(1), nine), codes.InvalidArgument, "at most 8 entries, not 9"},
		"twice":         {"shop", append(many(2), many(1)...), codes.InvalidArgument, "once"},
		"negative time": {"shop", append(many(1), used(1, 0, -time.Second, "none", "x")), codes.InvalidArgument, "time_elapsed must be 0 or more: -1 s"},
		"no duration":   {"shop", append(many(1), bad), codes.InvalidArgument, "time_elapsed"},
		"too many":      {"shop", many(10_001), codes.ResourceExhausted, "10000 buckets"},
		"ten thousand":  {"shop", many(10_000), codes.OK, ""},
		"a long value":  {"shop", []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{used(1, 0, 0, "path", strings.Repeat("x", 60<<10), "tenant", "a")}, codes.OK, ""},
		"huge counts":   {"shop", []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{used(1<<64-1, 1<<64-1, 1, "path", "h", "tenant", "a")}, codes.OK, ""},
		"a long time":   {"shop", []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{used(1, 0, 1<<63-1, "path", "i", "tenant", "a")}, codes.OK, ""},
		"no buckets":    {"shop", append(many(0), used(0, 0, 0, "none", "x")), codes.OK, ""},
	} {
		all, err := report(r.quotas(), c.domain, c.usages...)
		if status.Code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%s: %v, want %v and %q", name, err, c.code, c.text)
		}
		if err == nil && len(all) != len(c.usages) {
			t.Errorf("%s: %d answers to %d buckets", name, len(all), len(c.usages))
		}
	}
	stream := r.quotas()
	if _, err := report(stream, "shop", many(1)...); err != nil {
		t.Fatal(err)
	}
	if _, err := report(stream, "other", many(1)...); status.Code(err) != codes.InvalidArgument {
		t.Errorf("another domain: %v", err)
	}
}
