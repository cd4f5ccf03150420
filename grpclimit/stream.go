package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

func (s *server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := Call{Unregistered: srv == nil}
	if info != nil {
		c.Method = info.FullMethod
	}
	ctx := ss.Context()
	if s.cfg.Skip(ctx, c) {
		return handler(srv, ss)
	}
	around := s.gate.Around(ctx)
	parts, err := s.partsOf(ctx, c, s.class(ctx, c), around, nil)
	if err != nil {
		if err := s.withoutKey(ctx, c, ss, err); err != nil {
			return err
		}
		return handler(srv, ss)
	}
	var start, each []gate.Part
	for _, p := range parts {
		if p.Each {
			each = append(each, p)
		} else {
			start = append(start, p)
		}
	}
	defer gate.Release(start) // before anything that can panic
	if err := s.admit(ctx, start, ss); err != nil {
		return err
	}
	s.admitted(ctx, start)
	var mark *gate.Mark
	if s.gate.Often() {
		ctx, _ = s.gate.Within(ctx, start)
		ctx, mark = s.gate.Within(ctx, nil)
	}
	if len(each) > 0 {
		ss = &counted{ss, s, c, each, make([]gate.Part, 0, len(each)), nil, around, mark}
	}
	if mark != nil {
		ss = &marked{ss, ctx}
	}
	return handler(srv, ss)
}

// marked is a stream with a mark in its context.
type marked struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context with the mark.
func (m *marked) Context() context.Context { return m.ctx }

// counted is a stream whose messages take units.
type counted struct {
	grpc.ServerStream
	server *server
	call   Call
	parts  []gate.Part // of each message, before it is asked for
	now    []gate.Part // of the message that is asked for
	ended  error       // the status after which no message is received

	around, mark *gate.Mark // of the interceptors around, and of the last message here; nil: none
}

// RecvMsg receives a message and takes its units. gRPC allows one RecvMsg at a time, so the fields need no lock.
func (c *counted) RecvMsg(m any) error {
	if c.ended != nil {
		return c.ended
	}
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	ctx := c.Context()
	call := c.call
	call.Request = m
	c.now = c.now[:0]
	for _, p := range c.parts {
		if cost := c.server.limits[p.Index].Cost; cost != nil {
			if p.N = cost(ctx, call); p.N == 0 {
				continue
			}
		}
		if !c.around.Rest(&p) {
			continue
		}
		c.now = append(c.now, p)
	}
	c.ended = c.server.admit(ctx, c.now, c.ServerStream)
	c.mark.Count(c.now)
	return c.ended
}
