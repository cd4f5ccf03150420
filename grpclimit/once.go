package grpclimit

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

const (
	// sure is the number of calls of a method after which the interceptor takes it that
	// no other one inside it has its limiters. The chain of a method does not change.
	sure = 16
	// maxMethods bounds the methods that are told apart.
	maxMethods = 4096
)

// chains knows for each method whether an interceptor inside this one has a limiter of
// it. Then calls get a mark in their context, so that they count once.
type chains struct {
	mu sync.Mutex // held by writers
	of atomic.Pointer[map[string]*atomic.Int64]
}

// at returns the calls of a method that met no limiter again. Below 0: a call did. Nil:
// the method is not known.
func (c *chains) at(call Call) *atomic.Int64 {
	if all := c.of.Load(); all != nil {
		if calls := (*all)[call.Method]; calls != nil || len(*all) >= maxMethods {
			return calls
		}
	}
	if call.Unregistered { // its method is a text of the client
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]*atomic.Int64{}
	if all := c.of.Load(); all != nil {
		if calls := (*all)[call.Method]; calls != nil {
			return calls
		}
		maps.Copy(next, *all)
	}
	calls := new(atomic.Int64)
	next[call.Method] = calls
	c.of.Store(&next)
	return calls
}

// within calls the handler of an admitted call. The interceptors inside find what has
// counted.
func (s *server) within(ctx context.Context, c Call, req any, parts []gate.Part, handler grpc.UnaryHandler) (any, error) {
	calls := s.chains.at(c)
	if calls != nil && calls.Load() >= sure {
		return handler(ctx, req)
	}
	ctx, mark := gate.Within(ctx, s.limiters, parts, s.cfg.Shedder)
	reply, err := handler(ctx, req)
	learn(calls, mark, err)
	return reply, err
}

// withinStream is within for streams.
func (s *server) withinStream(c Call, parts []gate.Part, srv any, ss grpc.ServerStream, handler grpc.StreamHandler) error {
	calls := s.chains.at(c)
	if calls != nil && calls.Load() >= sure {
		return handler(srv, ss)
	}
	ctx, mark := gate.Within(ss.Context(), s.limiters, parts, nil)
	err := handler(srv, &markedStream{ss, ctx})
	learn(calls, mark, err)
	return err
}

// learn notes whether a call has met a limiter again. A call that fails may not have
// reached the interceptors inside.
func learn(calls *atomic.Int64, mark *gate.Mark, err error) {
	switch {
	case calls == nil:
	case mark.Met():
		calls.Store(-1 << 62) // never sure
	case err == nil:
		calls.Add(1)
	}
}

// markedStream is a stream with the mark of an interceptor in its context.
type markedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context with the mark.
func (m *markedStream) Context() context.Context { return m.ctx }
