package rlqs

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
	"github.com/hybridlimit/hybridlimit/rls"
)

const (
	// sweepEvery is the time after which a stream looks for assignments that have expired.
	sweepEvery = 5 * time.Second
	// logEvery is the least time between two lines about questions without an answer.
	logEvery = 10 * time.Second
)

// Service is a rate limit quota service. It is safe for concurrent use.
type Service struct {
	pb.UnimplementedRateLimitQuotaServiceServer

	rules *rls.Service
	fleet *fleet
	log   *slog.Logger

	unanswered, unknown *sometimes.Line // kinds of lines in the log

	mu      sync.Mutex
	ctx     context.Context // ended by Close, with mu held
	stop    context.CancelFunc
	streams sync.WaitGroup // and the slices of streams that have ended
}

// New returns a service with the rules of another one, on its hub. It adds three limiters of calls in flight to the
// hub: "rlqs.slices", "rlqs.envoys" and "rlqs.needs". Close it before the hub. Log receives a line, at most every ten
// seconds, about buckets that have no assignment because of an error, and about a domain that the rules do not have. It
// never receives entries of a bucket. Nil: slog.Default(). The error is that of Hub.Concurrency.
func New(hub *hybrid.Hub, rules *rls.Service, log *slog.Logger) (*Service, error) {
	f, err := newFleet(hub)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.Default()
	}
	s := &Service{
		rules: rules, fleet: f, log: log, unanswered: sometimes.Every(logEvery), unknown: sometimes.Every(logEvery),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends all streams with the error Unavailable, and gives their slices back to the fleet, although their Envoys
// use them until they hear of another assignment or theirs has expired. It closes the limiters. It is idempotent.
func (s *Service) Close() error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.streams.Wait()
	return s.fleet.close()
}

// begin begins a stream.
func (s *Service) begin() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, status.Error(codes.Unavailable, "rlqs: the service is shutting down")
	}
	s.streams.Add(1)
	return &session{service: s, buckets: map[name]*bucket{}}, nil
}

// StreamRateLimitQuotas implements pb.RateLimitQuotaServiceServer. The first report names the domain. A report that
// is not valid ends the stream with InvalidArgument, and one with a bucket more than 10 000 with ResourceExhausted.
func (s *Service) StreamRateLimitQuotas(stream pb.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	one, err := s.begin()
	if err != nil {
		return err
	}
	defer one.end()
	reports, failed := make(chan *pb.RateLimitQuotaUsageReports), make(chan error, 1)
	go func() { // it ends with the stream's context, so with this call
		for {
			in, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case reports <- in:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return status.Error(codes.Unavailable, "rlqs: the service is shutting down")
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case now := <-sweep.C:
			one.sweep(now)
		case in := <-reports:
			out, err := one.answer(in, time.Now())
			if err != nil {
				return err
			}
			if len(out.GetBucketAction()) == 0 {
				continue
			}
			if err := stream.Send(out); err != nil {
				return err
			}
		}
	}
}

// warn writes a line, if one of its kind is due.
func (s *Service) warn(kind *sometimes.Line, text string, about slog.Attr) {
	if skipped, ok := kind.Due(); ok {
		s.log.Warn(text, about, slog.Int64("skipped", skipped))
	}
}
