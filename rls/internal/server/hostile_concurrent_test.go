//go:build unix

package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// Values of requests are labels with detailed_metric. They are bounded and escaped, and no
// log line has them.
func TestHostileValues(t *testing.T) {
	srv := redistest.New(t)
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", detailed), "-redis", srv.Addr(), "-max-keys", "1000")
	redistest.Eventually(t, 10*time.Second, "healthy", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
	for _, value := range []string{"secret\"} 1\n# x", "secret\\", "secret\x00\x01", "secret\u202e\U0010ffff", "secret.a.b|c:d", strings.Repeat("secret", 5000), "secret{}=,"} {
		if got := r.ask("shop", 1, entry("user", value)).GetOverallCode(); got != pb.RateLimitResponse_OK {
			t.Errorf("%.20q: %v", value, got)
		}
		r.ask("secret"+value[:min(len(value), 50)], 1, entry("user", value))
		r.ask("shop", 1, entry("secret"+value[:min(len(value), 50)], value))
	}
	if _, err := r.client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{entry("user", "\xff\xfe")}}); err == nil {
		t.Error("invalid UTF-8 is accepted")
	}
	const values, each = 12_000, 500 // more than the names that metrics have
	var callers sync.WaitGroup
	for c := range 8 {
		callers.Go(func() {
			for from := c * each; from < values; from += 8 * each {
				req := &pb.RateLimitRequest{Domain: "shop"}
				for i := range each {
					req.Descriptors = append(req.Descriptors, entry("user", fmt.Sprint("secret", from+i)))
				}
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				r.client.ShouldRateLimit(ctx, req) // it may end with its time
				cancel()
			}
		})
	}
	callers.Wait()
	_, text := r.get("/metrics")
	if n := strings.Count(text, "\nratelimit_service_rate_limit_total_hits{"); n > 10_001 {
		t.Errorf("%d series", n)
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "#") && !series.MatchString(line) {
			t.Errorf("not in the form of Prometheus: %.200q", line)
		}
	}
	if r.health() != healthpb.HealthCheckResponse_SERVING {
		t.Error("not healthy")
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if strings.Contains(r.log.String(), "secret") {
		t.Error(r.log.String())
	}
}

func TestCancelledCalls(t *testing.T) {
	srv := redistest.New(t)
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules), "-redis", srv.Addr())
	redistest.Eventually(t, 10*time.Second, "healthy", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
	goroutines := func() (n int) {
		_, text := r.get("/metrics")
		if _, err := fmt.Sscanf(text[strings.Index(text, "\ngo_goroutines "):], "\ngo_goroutines %d", &n); err != nil || n < 1 {
			t.Errorf("%d goroutines, %v", n, err)
		}
		return n
	}
	before := goroutines() // with the workers of gRPC, which stay
	must(t, srv.Pause())
	var callers sync.WaitGroup
	for i := range 500 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%50)*time.Millisecond)
			defer cancel()
			r.client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{entry("user", fmt.Sprint("cancelled", i))}})
		})
	}
	callers.Wait()
	must(t, srv.Resume())
	redistest.Eventually(t, 20*time.Second, "the goroutines end", func() bool {
		return goroutines() < before+50
	})
	redistest.Eventually(t, 20*time.Second, "calls are answered", func() bool {
		return r.ask("shop", 1, entry("user", "b")).GetOverallCode() == pb.RateLimitResponse_OK
	})
	if code, _ := r.get("/healthcheck"); code != http.StatusOK {
		t.Error(code)
	}
}
