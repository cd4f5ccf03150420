package grpclimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// onLog is a log handler that calls f.
type onLog struct{ f func() }

func (onLog) Enabled(context.Context, slog.Level) bool    { return true }
func (h onLog) Handle(context.Context, slog.Record) error { h.f(); return nil }
func (h onLog) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h onLog) WithGroup(string) slog.Handler             { return h }

// interceptors make calls through an interceptor of each kind.
var interceptors = map[string]func(grpclimit.Config, ...grpclimit.Limit) (interceptor, error){
	"unary": func(cfg grpclimit.Config, limits ...grpclimit.Limit) (interceptor, error) {
		in, err := grpclimit.UnaryServer(cfg, limits...)
		return func(ctx context.Context, handle func()) error {
			_, err := in(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) { handle(); return nil, nil })
			return err
		}, err
	},
	"stream": func(cfg grpclimit.Config, limits ...grpclimit.Limit) (interceptor, error) {
		in, err := grpclimit.StreamServer(cfg, limits...)
		return func(ctx context.Context, handle func()) error {
			return in(nil, idle{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(any, grpc.ServerStream) error { handle(); return nil })
		}, err
	},
}

type interceptor func(ctx context.Context, handle func()) error

// calm makes a call whose panic is an error.
func (call interceptor) calm(ctx context.Context, handle func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call(ctx, handle)
}

// TestPermitsAreNotLost checks that no permit and no unit stays taken, whenever a client leaves and whatever panics. Cause: with
// FailOpen the interceptors asked twice whether a call goes on although a limiter could not decide. A client that left in between
// kept its permit for ever.
func TestPermitsAreNotLost(t *testing.T) {
	for name, onLine := range map[string]func(cancel func()){
		"leaves when the failure is logged": func(cancel func()) { cancel() },
		"the logger panics":                 func(func()) { panic("a bug") },
	} {
		for kind, make := range interceptors {
			for _, failure := range []grpclimit.Failure{grpclimit.FailOpen, grpclimit.FailClosed} {
				limit, calls := inFlight(t, 5)
				rate, err := local.New(hybridlimit.TokenBucket(1, time.Hour, 5), local.Config{Name: "rate"})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				call, err := make(grpclimit.Config{Failure: failure, Logger: slog.New(onLog{func() { onLine(cancel) }})},
					limit, grpclimit.Limit{Limiter: rate, Key: one}, grpclimit.Limit{Limiter: failing{hybridlimit.ErrUnavailable}, Name: "broken", Key: one})
				if err != nil {
					t.Fatal(err)
				}
				served := 0
				for range 4 {
					err = call.calm(ctx, func() { served++ })
				}
				cancel()
				res, peek := rate.Peek(t.Context(), "k")
				if n := calls.Running("k"); n != 0 || peek != nil || res.Remaining != int64(5-served) {
					t.Errorf("%s, %v, %s (%v): %d permits are held, %d units are left after %d served calls, %v",
						kind, failure, name, err, n, res.Remaining, served, peek)
				}
			}
		}
	}
}
