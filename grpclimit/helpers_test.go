package grpclimit_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// lines is a log for a test to read.
type lines struct{ strings.Builder }

func (l *lines) count() int { return strings.Count(l.String(), "\n") }

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

var quiet = slog.New(slog.DiscardHandler)

var errEOF = io.EOF

// transport records the trailer of a unary call, as the server of gRPC does.
type transport struct{ trailer metadata.MD }

func (*transport) Method() string               { return "/test.Service/Method" }
func (*transport) SetHeader(metadata.MD) error  { return nil }
func (*transport) SendHeader(metadata.MD) error { return nil }
func (t *transport) SetTrailer(md metadata.MD) error {
	t.trailer = metadata.Join(t.trailer, md)
	return nil
}

// answer is the end of a call.
type answer struct {
	err      error
	code     codes.Code
	retry    *errdetails.RetryInfo
	quota    *errdetails.QuotaFailure
	pushback string // "": no trailer
	served   bool
}

func answerOf(err error, trailer metadata.MD, served bool) answer {
	st, _ := status.FromError(err)
	a := answer{err: err, code: st.Code(), pushback: strings.Join(trailer["grpc-retry-pushback-ms"], ","), served: served}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			a.retry = d
		case *errdetails.QuotaFailure:
			a.quota = d
		}
	}
	return a
}

// policies returns the names of the violated policies.
func (a answer) policies() string {
	var names []string
	for _, v := range a.quota.GetViolations() {
		names = append(names, v.GetQuotaId())
	}
	return strings.Join(names, ",")
}

// unary calls UnaryServer, and fails the test if that fails. The function returned
// makes a call.
func unary(t testing.TB, cfg grpclimit.Config, limits ...grpclimit.Limit) func(ctx context.Context) answer {
	t.Helper()
	intercept, err := grpclimit.UnaryServer(cfg, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) answer {
		to, served := &transport{}, false
		_, err := intercept(grpc.NewContextWithServerTransportStream(ctx, to), "request", &grpc.UnaryServerInfo{FullMethod: "/test.Service/Method"},
			func(context.Context, any) (any, error) { served = true; return "reply", nil })
		return answerOf(err, to.trailer, served)
	}
}

// messages is a stream that receives a number of messages.
type messages struct {
	grpc.ServerStream
	ctx     context.Context
	left    int
	trailer metadata.MD
}

func (m *messages) Context() context.Context { return m.ctx }

func (m *messages) SetTrailer(md metadata.MD) { m.trailer = metadata.Join(m.trailer, md) }

func (m *messages) RecvMsg(any) error {
	if m.left == 0 {
		return errEOF
	}
	m.left--
	return nil
}

// streamed makes a stream with n messages, and returns the number received.
func streamed(ctx context.Context, t testing.TB, cfg grpclimit.Config, n int, limits ...grpclimit.Limit) (answer, int) {
	t.Helper()
	intercept, err := grpclimit.StreamServer(cfg, limits...)
	if err != nil {
		t.Fatal(err)
	}
	ss, received, served := &messages{ctx: ctx, left: n}, 0, false
	err = intercept("service", ss, &grpc.StreamServerInfo{FullMethod: "/test.Service/Stream"}, func(_ any, ss grpc.ServerStream) error {
		served = true
		for {
			if err := ss.RecvMsg(new(int)); err == errEOF {
				return nil
			} else if err != nil {
				return err
			}
			received++
		}
	})
	return answerOf(err, ss.trailer, served), received
}

// newLocal returns a local limiter with a name.
func newLocal(t testing.TB, name string, limit hybridlimit.Limit) *local.Limiter {
	t.Helper()
	l, err := local.New(limit, local.Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// failing is a limiter that always returns one error and no decision.
type failing struct{ err error }

func (f failing) Allow(context.Context, string) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, f.err
}

func (f failing) AllowN(context.Context, string, int64) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, f.err
}

// failingJoint fails in joint calls too.
type failingJoint struct{ failing }

func (failingJoint) Joins(hybridlimit.Limiter) bool { return true }

func (f failingJoint) AllowJoint(context.Context, []hybridlimit.Ask) (hybridlimit.Result, error) {
	return hybridlimit.Result{}, f.err
}

// fixed returns one key for all calls.
func fixed(key string) grpclimit.KeyFunc {
	return func(context.Context, grpclimit.Call) string { return key }
}

// from returns the context of a call from an address, with metadata.
func from(ctx context.Context, addr net.Addr, pairs ...string) context.Context {
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: addr})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...))
}

// tcp returns the address of a TCP connection.
func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }
