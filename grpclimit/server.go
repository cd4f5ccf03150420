package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// UnaryServer returns an interceptor that applies all limits to each unary call, and then asks Config.Shedder. Its
// error (ErrInvalid) lists everything wrong with the arguments.
//
// A call that meets the same limit in two interceptors of a chain counts once: with its largest cost. Limits are the
// same if they have the same Limiter, name and key, and the call the same class and the same limit of Limit.Of. The
// call is known by its context, so a call that a handler makes inside the process with its own context counts as the
// handler's. That costs a mark in the context, which a call has only if a limiter or the Shedder is in two or more
// interceptors of unary calls, or of streams. So one interceptor that stands in a chain twice counts twice. Each
// message of a stream counts once too.
//
// The interceptor is safe for concurrent use and starts no goroutines. docs/grpc.md has the time that a limit adds to a
// call.
func UnaryServer(cfg Config, limits ...Limit) (grpc.UnaryServerInterceptor, error) {
	s, err := newServer(cfg, limits, true)
	if err != nil {
		return nil, err
	}
	return s.unary, nil
}

// StreamServer returns an interceptor that applies all limits to each stream: at its start, or for each message that it
// receives (Limit.PerMessage). The rest is as in UnaryServer, without the Shedder.
func StreamServer(cfg Config, limits ...Limit) (grpc.StreamServerInterceptor, error) {
	s, err := newServer(cfg, limits, false)
	if err != nil {
		return nil, err
	}
	return s.stream, nil
}

// server is the state of one interceptor.
type server struct {
	cfg    Config
	limits []limit // in the order in which they are asked
	gate   *gate.Gate
}

// limit is a Limit of an interceptor.
type limit struct {
	gate.Limit
	key        KeyFunc
	required   bool
	missing    error // the failure of a call without a key, if required
	cost       func(context.Context, Call) int64
	of         func(context.Context, Call) (hybridlimit.Limit, bool)
	perMessage bool
}

func newServer(cfg Config, limits []Limit, sheds bool) (*server, error) {
	shared, err := checked(cfg, limits, sheds)
	if err != nil {
		return nil, err
	}
	if cfg.Skip == nil {
		cfg.Skip = Infrastructure
	}
	kind, shedder := gate.Stream, any(nil)
	if sheds {
		kind, shedder = gate.Unary, cfg.Shedder
	}
	s := &server{
		cfg: cfg,
		gate: gate.New(kind, shared, shedder, cfg.Failure == FailOpen, gate.NewLog(cfg.Logger, gate.Names{
			Package: "grpclimit",
			Request: "call",
			Bad:     "InvalidArgument",
			Refused: "Unavailable",
		})),
	}
	for _, i := range gate.Order(shared) {
		l := limits[i]
		made := limit{Limit: shared[i], key: l.Key, required: l.Required, cost: l.Cost, of: l.Of, perMessage: l.PerMessage}
		if l.Required {
			made.missing = shared[i].Missing(i, errNoKey)
		}
		s.limits = append(s.limits, made)
	}
	s.gate.Stands()
	return s, nil
}

// setTrailer adds to the trailer of a call. Its stream is nil for a unary call.
func setTrailer(ctx context.Context, stream grpc.ServerStream, md metadata.MD) {
	if stream != nil {
		stream.SetTrailer(md)
		return
	}
	_ = grpc.SetTrailer(ctx, md) // outside a server, as in a test of a handler, there is no trailer
}

func (s *server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c := Call{Request: req}
	if info != nil {
		c.Method = info.FullMethod
	}
	if s.cfg.Skip(ctx, c) {
		return handler(ctx, req)
	}
	class := s.class(ctx, c)
	var room [gate.FewParts]gate.Part
	around := s.gate.Around(ctx)
	parts, err := s.partsOf(ctx, c, class, false, around, room[:0])
	if err != nil {
		err = s.withoutKey(ctx, c, nil, err)
	} else {
		if s.gate.Holds { // before anything that can panic
			defer gate.Release(parts)
		}
		err = s.admit(ctx, parts, nil)
	}
	if err != nil {
		return nil, err
	}
	if s.cfg.Shedder != nil && !around.Placed(s.cfg.Shedder) {
		permit, err := s.place(ctx, class, parts)
		if err != nil {
			return nil, err
		}
		defer permit.Release()
	}
	if s.gate.Often() {
		ctx, _ = s.gate.Within(ctx, parts)
	}
	return handler(ctx, req)
}

// class returns the class of a call, or "" without Config.Class.
func (s *server) class(ctx context.Context, c Call) string {
	if s.cfg.Class == nil {
		return ""
	}
	return s.cfg.Class(ctx, c)
}

// partsOf appends a part for each limit that applies to the call. Free ones are left out, unless the cost is per
// message: that is known only later. It returns errNoLimit or errNoKey if a key is missing. Units that interceptors
// around have counted are left out too.
func (s *server) partsOf(ctx context.Context, c Call, class string, streamed bool, around *gate.Mark, parts []gate.Part) ([]gate.Part, error) {
	applied := false
	for i := range s.limits {
		l := &s.limits[i]
		key, n := l.key(ctx, c), int64(1)
		if key == "" {
			if l.required {
				return parts, l.missing
			}
			continue
		}
		applied = true
		if later := l.perMessage && streamed; l.cost != nil && !later {
			if n = l.cost(ctx, c); n == 0 {
				continue
			}
		}
		p := gate.Part{Limit: &l.Limit, Index: i, Key: key, N: n, Each: l.perMessage && streamed}
		if l.of != nil {
			p.Given, p.GivenOK = l.of(ctx, c)
		}
		if s.cfg.Class != nil {
			p.View = l.Class(class)
		}
		if !p.Each && !around.Rest(&p) {
			continue
		}
		parts = append(parts, p)
	}
	if !applied && len(s.limits) > 0 {
		return parts, errNoLimit
	}
	return parts, nil
}

// admit asks the limits of a call or of a message, and waits for its place in all queues. Its error is the status of
// the call.
func (s *server) admit(ctx context.Context, parts []gate.Part, stream grpc.ServerStream) error {
	answer := s.gate.Ask(ctx, parts)
	switch {
	case answer.Denied >= 0:
		return s.deny(ctx, parts, answer.Denied, stream)
	case !answer.Admits:
		return refuse(ctx, answer.Err)
	}
	if err := s.gate.Shape(ctx, parts); err != nil {
		s.gate.Log.GaveUp(ctx, err, parts)
		return ended(ctx)
	}
	return nil
}
