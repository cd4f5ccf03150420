package grpclimit

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
	"github.com/hybridlimit/hybridlimit/internal/ratelimitheader"
)

// The keys of Config.Quota in metadata. Their values are those of the fields of HTTP.
const (
	keyRateLimit = "ratelimit"
	keyPolicy    = "ratelimit-policy"
)

// quota is what a call tells about its limits. The outermost interceptor with Config.Quota sends it, because gRPC
// appends to metadata and never replaces it. Interceptors inside find it in the context.
type quota struct {
	mu       sync.Mutex // a handler may send while RecvMsg denies a message
	policies []byte     // the value of ratelimit-policy
	left     []byte     // the value of ratelimit; empty: neither is sent
	closed   bool       // it is sent, or belongs to a call that was not admitted: nothing is added
}

type quotaKey struct{}

// quotaOf returns the quota of a call, or nil if the interceptor tells nothing.
func (s *server) quotaOf(ctx context.Context) *quota {
	if !s.cfg.Quota {
		return nil
	}
	q, _ := ctx.Value(quotaKey{}).(*quota)
	return q
}

// admitted adds the limits of a call that they have admitted.
func (s *server) admitted(ctx context.Context, parts []gate.Part) {
	q := s.quotaOf(ctx)
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for i := range parts {
		p := &parts[i]
		if it := s.items[p.Index].Of(p); it != nil && p.Res.Source != hybridlimit.SourceUnknown {
			q.policies = join(q.policies, it.Policy)
			q.left = it.Left(q.left, p)
		}
	}
}

// denied replaces what is left by that of the limit that denied, with the wait as its t: the draft forbids a t that
// ends later.
func (s *server) denied(ctx context.Context, parts []gate.Part, denied int, after time.Duration) {
	q := s.quotaOf(ctx)
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.left, q.closed = nil, true
	p := &parts[denied]
	it := s.items[p.Index].Of(p)
	if it == nil {
		return
	}
	for i := range parts {
		if one := s.items[parts[i].Index].Of(&parts[i]); one != nil {
			q.policies = join(q.policies, one.Policy)
		}
	}
	t := int64(0)
	if after != hybridlimit.Never {
		t = ratelimitheader.Seconds(after)
	}
	q.left = it.Append(q.left, max(0, p.Res.Remaining), t)
}

// refused removes what was told: a call that was refused for another reason than a limit tells nothing.
func (s *server) refused(ctx context.Context) {
	q := s.quotaOf(ctx)
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.close()
	}
}

func (q *quota) close() { q.policies, q.left, q.closed = nil, nil, true }

// join appends an item to a list.
func join(list []byte, item string) []byte {
	if len(list) > 0 {
		list = append(list, ", "...)
	}
	return append(list, item...)
}

// send sets the metadata once. If set fails, it can be sent again.
func (q *quota) send(set func(metadata.MD) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) == 0 {
		return
	}
	if set(metadata.Pairs(keyRateLimit, string(q.left), keyPolicy, string(q.policies))) == nil {
		q.close()
	}
}

// quotedUnary is unary with Config.Quota.
//
// The header is set after the handler, and only if that succeeds: gRPC retries no call whose answer had a header.
// SetHeader fails after a SendHeader of the handler.
func (s *server) quotedUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if s.quotaOf(ctx) != nil {
		return s.unary(ctx, req, info, handler)
	}
	q := &quota{}
	reply, err := s.unary(context.WithValue(ctx, quotaKey{}, q), req, info, handler)
	if err == nil {
		q.send(func(md metadata.MD) error { return grpc.SetHeader(ctx, md) })
	}
	q.send(func(md metadata.MD) error { return grpc.SetTrailer(ctx, md) })
	return reply, err
}

// quotedStream is stream with Config.Quota.
func (s *server) quotedStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s.quotaOf(ss.Context()) != nil {
		return s.stream(srv, ss, info, handler)
	}
	q := &quota{}
	err := s.stream(srv, &quoted{ss, context.WithValue(ss.Context(), quotaKey{}, q), q}, info, handler)
	if err == nil {
		q.send(ss.SetHeader)
	}
	q.send(func(md metadata.MD) error { ss.SetTrailer(md); return nil })
	return err
}

// quoted is a stream that tells its quota in the header, which gRPC sends with the first message.
type quoted struct {
	grpc.ServerStream
	ctx   context.Context
	quota *quota
}

// Context returns the context with the quota.
func (q *quoted) Context() context.Context { return q.ctx }

// SendHeader sends the header with the quota.
func (q *quoted) SendHeader(md metadata.MD) error {
	q.quota.send(q.SetHeader)
	return q.ServerStream.SendHeader(md)
}

// SendMsg sends a message, and before the first one the header with the quota.
func (q *quoted) SendMsg(m any) error {
	q.quota.send(q.SetHeader)
	return q.ServerStream.SendMsg(m)
}
