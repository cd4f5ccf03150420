package grpclimit

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

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
	if cfg.Quota {
		return s.quotedUnary, nil
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
	if cfg.Quota {
		return s.quotedStream, nil
	}
	return s.stream, nil
}

// server is the state of one interceptor.
type server struct {
	cfg    Config
	limits []gate.Reader[Call] // in the order in which they are asked
	items  []*gate.Items       // of limits, by index
	gate   *gate.Gate
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
		made := gate.Reader[Call]{Limit: &shared[i], Key: l.Key, Cost: l.Cost, Of: l.Of, Stream: l.PerMessage && !sheds}
		if l.Required {
			made.NoKey = shared[i].Missing(i, errNoKey)
		}
		s.limits = append(s.limits, made)
		s.items = append(s.items, gate.NewItems(&shared[i]))
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
	parts, err := s.partsOf(ctx, c, class, around, room[:0])
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
	s.admitted(ctx, parts)
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

// partsOf appends a part for each limit that applies to the call.
func (s *server) partsOf(ctx context.Context, c Call, class string, around *gate.Mark, parts []gate.Part) ([]gate.Part, error) {
	return gate.PartsOf(ctx, c, s.limits, s.cfg.Class != nil, class, around, parts, errNoLimit)
}

// admit asks the limits of a call or of a message, and waits for its place in all queues. Its error is the status of
// the call.
func (s *server) admit(ctx context.Context, parts []gate.Part, stream grpc.ServerStream) error {
	answer := s.gate.Ask(ctx, parts)
	switch {
	case answer.Denied >= 0:
		return s.deny(ctx, parts, answer.Denied, stream)
	case !answer.Admits:
		return s.refuse(ctx, answer.Err)
	}
	if err := s.gate.Shape(ctx, parts); err != nil {
		s.gate.Log.GaveUp(ctx, err, parts)
		s.refused(ctx)
		return ended(ctx)
	}
	return nil
}

// NoKey is the answer to a call without a key. A call has no key if every Limit.Key returns "", or if the Key of a
// Required limit does. NoKey is NoKeyDeny, NoKeyPass, or a code other than OK:
//
//	grpclimit.Config{NoKey: grpclimit.NoKey(codes.Unauthenticated)}
type NoKey uint32

// The answers other than a code.
const (
	// NoKeyDeny answers ResourceExhausted with QuotaFailure, and asks gRPC's retries to stop. It is the zero value
	// because a client can often leave out its key; if such a call were admitted, the client would have no limit.
	NoKeyDeny NoKey = 0
	// NoKeyPass passes the call to the handler without a limit. It is for keys that a client cannot leave out. It
	// contradicts a Required limit, so UnaryServer and StreamServer return an error for both.
	NoKeyPass NoKey = 1 << 16
)

// String returns "deny", "pass" or the code.
func (k NoKey) String() string {
	switch k {
	case NoKeyDeny:
		return "deny"
	case NoKeyPass:
		return "pass"
	}
	return codes.Code(k).String()
}

// valid reports whether k is NoKeyDeny, NoKeyPass, or a code other than OK.
func (k NoKey) valid() bool {
	return k == NoKeyDeny || k == NoKeyPass || codes.Code(k) <= codes.Unauthenticated
}

// code returns the code of an answer other than NoKeyPass.
func (k NoKey) code() codes.Code {
	if k == NoKeyDeny {
		return codes.ResourceExhausted
	}
	return codes.Code(k)
}

// The failures of calls for which no limiter was asked.
var (
	errNoLimit = errors.New("grpclimit: no limit applies to the call")
	errNoKey   = errors.New("grpclimit: a required limit has no key for the call")
)

// withoutKey answers a call without a key according to Config.NoKey. Nil: the call passes.
func (s *server) withoutKey(ctx context.Context, c Call, stream grpc.ServerStream, err error) error {
	level := slog.LevelWarn
	if s.cfg.NoKey == NoKeyPass {
		level = slog.LevelDebug // the Config asks for such calls to be admitted
	}
	s.gate.Log.NoKey(ctx, level, "err", err, "method", gate.Shortened(c.Method), "answer", s.cfg.NoKey.String(),
		"remedy", "exempt the call in Config.Skip, return a key for it in Limit.Key, or set Config.NoKey")
	if s.cfg.NoKey == NoKeyPass {
		return nil
	}
	return s.refuseWithoutKey(ctx, stream)
}
