package server

import (
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// A server whose Redis refuses the password, or cannot be reached, decides without it, and
// logs the cause but no password.
func TestPasswords(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.WithArgs("--requirepass", "right-secret"))
	for name, c := range map[string]struct{ url, cause string }{
		"none":        {"redis://" + srv.Addr(), "auth"},
		"wrong":       {"redis://wrong-secret-user:wrong-secret@" + srv.Addr(), "WRONGPASS"},
		"unreachable": {"redis://:wrong-secret@127.0.0.1:1", "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the end waits five seconds for Redis
			r := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules), "-redis", c.url, "-ready-in", "100ms")
			redistest.Eventually(t, 20*time.Second, "the cause is logged", func() bool {
				return strings.Contains(strings.ToLower(r.log.String()), strings.ToLower(c.cause))
			})
			if got := r.health(); got != healthpb.HealthCheckResponse_SERVING {
				t.Error(got)
			}
			if got := r.ask("shop", 1, entry("user", "secret-value")).GetOverallCode(); got != pb.RateLimitResponse_OK {
				t.Error(got)
			}
			if r.end(); strings.Contains(r.log.String(), "secret") {
				t.Error(r.log.String())
			}
		})
	}
}
