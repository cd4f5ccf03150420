package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// inFlight returns a limit of n calls in flight.
func inFlight(t testing.TB, n int64) (grpclimit.Limit, *local.ConcurrencyLimiter) {
	t.Helper()
	l, err := local.NewConcurrency(hybridlimit.Concurrent(n), local.ConcurrencyConfig{Name: "running"})
	if err != nil {
		t.Fatal(err)
	}
	return grpclimit.Limit{Limiter: l, Key: one}, l
}

// one is the key of all calls.
func one(context.Context, grpclimit.Call) string { return "k" }

// idle is a stream without messages. It drops its trailer.
type idle struct {
	grpc.ServerStream
	ctx context.Context
}

func (s idle) Context() context.Context { return s.ctx }
func (idle) SetTrailer(metadata.MD)     {}

func TestCallsHoldPermits(t *testing.T) {
	limit, l := inFlight(t, 1)
	unary, err := grpclimit.UnaryServer(grpclimit.Config{Logger: quiet}, limit)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := grpclimit.StreamServer(grpclimit.Config{Logger: quiet}, limit)
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	for name, call := range map[string]func(handler func() error) error{
		"unary": func(handler func() error) error {
			ctx := grpc.NewContextWithServerTransportStream(t.Context(), new(transport))
			_, err := unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) { return nil, handler() })
			return err
		},
		"stream": func(handler func() error) error {
			ctx := grpc.NewContextWithServerTransportStream(t.Context(), new(transport))
			return stream(struct{}{}, idle{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(any, grpc.ServerStream) error { return handler() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := call(func() error {
				if l.Running("k") != 1 {
					t.Errorf("%d permits are held", l.Running("k"))
				}
				served := false
				a := answerOf(call(func() error { served = true; return nil }), nil, served)
				if a.code != codes.ResourceExhausted || served || a.retry == nil {
					t.Errorf("a second call: %+v", a)
				}
				return failed
			})
			if !errors.Is(err, failed) || l.Running("k") != 0 {
				t.Errorf("%v; %d permits are held", err, l.Running("k"))
			}
			func() {
				defer func() { _ = recover() }()
				_ = call(func() error { panic("a bug") })
			}()
			if l.Running("k") != 0 {
				t.Errorf("%d permits are held after a panic", l.Running("k"))
			}
		})
	}
}

func TestPermitsComeBackAfterADenial(t *testing.T) {
	limit, l := inFlight(t, 1)
	blocked, err := local.New(hybridlimit.Blocked(), local.Config{Name: "rate"})
	if err != nil {
		t.Fatal(err)
	}
	rate := grpclimit.Limit{Limiter: blocked, Key: one}
	unary, err := grpclimit.UnaryServer(grpclimit.Config{Logger: quiet}, rate, limit)
	if err != nil {
		t.Fatal(err)
	}
	ctx := grpc.NewContextWithServerTransportStream(t.Context(), new(transport))
	_, err = unary(ctx, nil, nil, func(context.Context, any) (any, error) { t.Error("served"); return nil, nil })
	if answerOf(err, nil, false).code != codes.ResourceExhausted || l.Running("k") != 0 {
		t.Errorf("%v; %d permits are held", err, l.Running("k"))
	}
}

func TestMessagesHoldNoPermits(t *testing.T) {
	limit, _ := inFlight(t, 1)
	limit.PerMessage = true
	_, err := grpclimit.StreamServer(grpclimit.Config{}, limit)
	if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "limits[0].PerMessage (true) must be false for a limit of calls in flight") {
		t.Error(err)
	}
}
