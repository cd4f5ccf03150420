package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// classed is a limiter with two classes. An unknown name is of the second one, as
// adapter.Classer says.
type classed struct {
	*local.Limiter

	rest *local.Limiter
}

func (c classed) ForClass(name string) hybridlimit.Limiter {
	if name == "critical" {
		return c.Limiter
	}
	return c.rest
}

// twoClasses returns a limiter with a burst of 5 for critical calls, and of 3 for
// others.
func twoClasses(t *testing.T) classed {
	t.Helper()
	return classed{newLocal(t, "api", hybridlimit.TokenBucket(1, time.Hour, 5)), newLocal(t, "api", hybridlimit.TokenBucket(1, time.Hour, 3))}
}

// left fails the test unless a limiter has n units left.
func left(t *testing.T, l *local.Limiter, n int64) {
	t.Helper()
	if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != n {
		t.Errorf("%s of burst %d has %d units left, want %d: %v", l.Name(), res.Limit, res.Remaining, n, err)
	}
}

// A unary call of a class is asked for by its view, beside a limit without classes.
func TestClass(t *testing.T) {
	api, plain := twoClasses(t), newLocal(t, "all", hybridlimit.TokenBucket(1, time.Hour, 100))
	asked := 0
	intercept, err := grpclimit.UnaryServer(
		grpclimit.Config{Class: func(ctx context.Context, c grpclimit.Call) string { asked++; return byMethod(ctx, c) }},
		grpclimit.Limit{Limiter: api, Key: fixed("k")}, grpclimit.Limit{Limiter: plain, Key: fixed("k")})
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		method string
		code   codes.Code
	}{
		{"Batch", codes.OK},
		{"Critical", codes.OK},
		{"Admin", codes.OK},
		{"", codes.OK},
		{"Batch", codes.ResourceExhausted},
		{"Critical", codes.OK},
	} {
		_, err := intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/test.Service/" + step.method}, empty)
		if got := status.Code(err); got != step.code || asked != i+1 {
			t.Errorf("call %d of %q: %v, want %v; Class was called %d times", i, step.method, got, step.code, asked)
		}
	}
	left(t, api.Limiter, 3)
	left(t, api.rest, 0)
	left(t, plain, 95)

	call := unary(t, grpclimit.Config{}, grpclimit.Limit{Limiter: api, Key: fixed("k")}) // without Class
	call(t.Context())
	left(t, api.Limiter, 2)
}

// A stream has one class, which its messages have too.
func TestClassOfAStream(t *testing.T) {
	for method, tc := range map[string]struct {
		received             int
		critical, rest, each int64 // units left
	}{
		"Critical": {5, 4, 3, 0},
		"Batch":    {3, 5, 2, 5},
	} {
		starts, messagesOf := twoClasses(t), twoClasses(t)
		asked := 0
		intercept, err := grpclimit.StreamServer(
			grpclimit.Config{Class: func(ctx context.Context, c grpclimit.Call) string { asked++; return byMethod(ctx, c) }},
			grpclimit.Limit{Limiter: starts, Key: fixed("k"), Name: "starts"},
			grpclimit.Limit{Limiter: messagesOf, Key: fixed("k"), Name: "messages", PerMessage: true})
		if err != nil {
			t.Fatal(err)
		}
		received := 0
		err = intercept("service", &messages{ctx: t.Context(), left: 10}, &grpc.StreamServerInfo{FullMethod: "/test.Service/" + method}, func(_ any, ss grpc.ServerStream) error {
			for {
				if err := ss.RecvMsg(new(int)); err != nil {
					return err
				}
				received++
			}
		})
		if status.Code(err) != codes.ResourceExhausted || received != tc.received || asked != 1 {
			t.Errorf("%s: %v after %d messages, want %d; Class was called %d times", method, err, received, tc.received, asked)
		}
		left(t, starts.Limiter, tc.critical)
		left(t, starts.rest, tc.rest)
		left(t, messagesOf.Limiter, tc.each)
	}
}
