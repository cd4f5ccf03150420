package server

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthName is the name of the service in gRPC health checks, as in envoyproxy/ratelimit. The empty name answers too.
const healthName = "ratelimit"

// readiness is the result of health checks. The server is ready when the rules are in force, and Redis has answered or
// had its time.
type readiness struct {
	grpc *health.Server
	yes  atomic.Bool // the result for HTTP

	mu       sync.Mutex
	rules    bool // they are in force, or the server need not wait for them
	domain   bool // there is one, or none is needed
	redis    bool // it has answered, or had its time
	draining bool // not ready for ever
}

func newReadiness(s *Settings) *readiness {
	r := &readiness{grpc: health.NewServer(), rules: s.NoWait, domain: !s.Domain}
	r.change(func() {})
	return r
}

// change changes a field and sets the result.
func (r *readiness) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	yes := r.rules && r.domain && r.redis && !r.draining
	r.yes.Store(yes)
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if yes {
		status = healthpb.HealthCheckResponse_SERVING
	}
	r.grpc.SetServingStatus("", status)
	r.grpc.SetServingStatus(healthName, status)
}

// ends reports whether the server drains.
func (r *readiness) ends() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// drain makes all checks fail, for ever.
func (r *readiness) drain() {
	r.change(func() { r.draining = true })
	r.grpc.Shutdown()
}
