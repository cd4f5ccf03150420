package rls

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Service is a rate limit service for Envoy. It is safe for concurrent use. Until the first SetRules it answers every
// request with the gRPC error Unavailable.
type Service struct {
	pb.UnimplementedRateLimitServiceServer

	options   Options
	limiters  *limiters
	overrides *overrides
	metrics   *metrics
	loading   sync.Mutex // held by SetRules
	state     atomic.Pointer[state]
}

// New returns a service on a hub, without rules. It makes limiters of the hub as the rules need them, with names that
// begin with "rls.". The caller shuts the hub down, after the last request.
func New(hub *hybrid.Hub, o Options) (*Service, error) {
	bad := o.violations()
	if hub == nil {
		bad.Add("hub", hub, "is required")
	}
	if err := bad.Err("rls"); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	most := o.Limiter.MaxKeys
	if most < 1 {
		most = 100_000
	}
	s := &Service{options: o, overrides: newOverrides(most), metrics: newMetrics(o.NearRatio)}
	s.limiters = &limiters{hub: hub, cfg: o.Limiter, limitFor: s.limitFor, of: map[kind]made{}}
	return s, nil
}

// noRules are the rules before the first SetRules.
var noRules Rules

// Rules returns the rules in force. Before the first SetRules there are none.
func (s *Service) Rules() *Rules {
	if st := s.state.Load(); st != nil {
		return st.set
	}
	return &noRules
}

// limitFor is LimitFor of all limiters.
func (s *Service) limitFor(k kind, key string) hybridlimit.Limit {
	if key != "" && key[0] == 0 {
		limit, _ := s.overrides.get(key) // without: not a valid limit, so the key keeps its own
		return limit
	}
	st := s.state.Load()
	if st == nil {
		return k.base()
	}
	limit, ok := st.limitOf(k, key)
	if !ok && st.before != nil {
		limit, ok = st.before.limitOf(k, key)
	}
	if !ok {
		return k.base() // Inspect asks about any key
	}
	return limit
}

// ShouldRateLimit decides a request. It implements pb.RateLimitServiceServer.
//
// The errors are gRPC errors: InvalidArgument for a request that cannot be decided, Canceled and DeadlineExceeded if
// the context ends while the request waits, and Unavailable before the first rules, after the hub was closed, or by
// Options.FailError. A request that ends with its context takes nothing from the rule for which it waited.
func (s *Service) ShouldRateLimit(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return s.serve(ctx, req, decides)
}

// Check tells what ShouldRateLimit would answer, and takes nothing: no units, and none are given back. Requests that are
// decided at the same time do not see each other, so Report the units afterwards. The errors are those of ShouldRateLimit.
func (s *Service) Check(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return s.serve(ctx, req, checks)
}

// Report books the units of a request as named costs, whatever they are: also one unit, and also with Options.AskCosts.
// See the package documentation. The errors are those of ShouldRateLimit.
func (s *Service) Report(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return s.serve(ctx, req, reports)
}

// purpose is what a request is for.
type purpose uint8

const (
	decides purpose = iota
	checks
	reports
)

// serve answers a request.
func (s *Service) serve(ctx context.Context, req *pb.RateLimitRequest, why purpose) (*pb.RateLimitResponse, error) {
	s.metrics.requests.Add(1)
	if err := s.check(req); err != nil {
		s.metrics.serviceErrors.Add(1)
		return nil, err
	}
	st := s.state.Load()
	if st == nil {
		s.metrics.serviceErrors.Add(1)
		return nil, status.Error(codes.Unavailable, "rls: there are no rules yet")
	}
	c := calls.Get().(*call)
	defer c.free()
	c.why = why
	err := c.resolve(ctx, s, st, req)
	if err == nil {
		err = c.decide(ctx)
	}
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	c.count()
	return c.answer(req), nil
}

// failed counts an error and makes a gRPC error of it.
func (s *Service) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errFallback), errors.Is(err, hybridlimit.ErrUnavailable):
		s.metrics.redisErrors.Add(1)
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, hybridlimit.ErrClosed):
		return status.Error(codes.Unavailable, "rls: the service is shutting down")
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	s.metrics.serviceErrors.Add(1)
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, "rls: "+err.Error())
}

// maxValue is the length of the longest domain, key or value of a request, in bytes. Envoy's headers are at most 60 KiB
// by default. gRPC bounds the request as a whole.
const maxValue = 64 << 10

// check returns the error of a request that is not decided. It does no other work.
func (s *Service) check(req *pb.RateLimitRequest) error {
	switch most := s.options.MaxDescriptors; {
	case req.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "rls: domain must not be empty")
	case len(req.GetDomain()) > maxValue:
		return tooLong("domain", len(req.GetDomain()))
	case len(req.GetDescriptors()) == 0:
		return status.Error(codes.InvalidArgument, "rls: descriptors must not be empty")
	case len(req.GetDescriptors()) > most:
		return tooMany("descriptors", len(req.GetDescriptors()), most)
	}
	for _, d := range req.GetDescriptors() {
		if most := s.options.MaxDescriptors; len(d.GetEntries()) > most {
			return tooMany("entries of a descriptor", len(d.GetEntries()), most)
		}
		for _, e := range d.GetEntries() {
			if n := max(len(e.GetKey()), len(e.GetValue())); n > maxValue {
				return tooLong("key or value of a descriptor", n)
			}
		}
	}
	return nil
}

func tooMany(field string, n, most int) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf("rls: %s (%d) must be at most %d", field, n, most))
}

func tooLong(field string, n int) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf("rls: %s (%d bytes) must be at most %d bytes", field, n, maxValue))
}
