package grpclimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// gatekeeper is a Shedder that notes its calls.
type gatekeeper struct {
	asked []string // classes
	held  int
	shed  bool
	never bool // waiting does not help
	err   error
}

func (g *gatekeeper) Acquire(_ context.Context, class string) (hybridlimit.Permit, hybridlimit.Result, error) {
	g.asked = append(g.asked, class)
	switch {
	case g.err != nil:
		return hybridlimit.Permit{}, hybridlimit.Result{}, g.err
	case g.never:
		return hybridlimit.Permit{}, hybridlimit.Result{Source: hybridlimit.SourceShed, RetryAfter: hybridlimit.Never}, nil
	case g.shed:
		return hybridlimit.Permit{}, hybridlimit.Result{Source: hybridlimit.SourceShed, RetryAfter: 2500 * time.Millisecond}, nil
	}
	g.held++
	return hybridlimit.NewPermit(g, 1), hybridlimit.Result{Allowed: true, Source: hybridlimit.SourceShed}, nil
}

// ReleasePermits implements hybridlimit.PermitHolder.
func (g *gatekeeper) ReleasePermits(n int64) { g.held -= int(n) }

// byMethod is a Class: the last part of the method, in lower case.
func byMethod(_ context.Context, c grpclimit.Call) string {
	return strings.ToLower(c.Method[strings.LastIndex(c.Method, "/")+1:])
}

// A shed call is Unavailable with the wait, and costs nothing.
func TestAShedCall(t *testing.T) {
	limiter := newLocal(t, "api", hybridlimit.PerHour(2))
	g := &gatekeeper{shed: true}
	call := unary(t, grpclimit.Config{Shedder: g, Class: byMethod}, grpclimit.Limit{Limiter: limiter, Key: fixed("k")})
	for range 3 { // more often than the limit has units: they come back
		a := call(t.Context())
		if a.code != codes.Unavailable || a.retry.GetRetryDelay().AsDuration() != 2500*time.Millisecond || a.pushback != "2500" || a.quota != nil || a.served {
			t.Errorf("%+v", a)
		}
	}
	if !slices.Equal(g.asked, []string{"method", "method", "method"}) {
		t.Errorf("asked for %q", g.asked)
	}
	early, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if a := call(early); a.code != codes.Unavailable || a.retry == nil || a.pushback != "-1" {
		t.Errorf("the wait is beyond the deadline: %+v", a)
	}
	g.never = true
	if a := call(t.Context()); a.code != codes.Unavailable || a.retry != nil || a.pushback != "-1" {
		t.Errorf("waiting does not help: %+v", a)
	}
}

// The wait of a shed call is lengthened by Config.Jitter too.
func TestJitterOfAShedCall(t *testing.T) {
	call := unary(t, grpclimit.Config{Shedder: &gatekeeper{shed: true}, Class: byMethod, Jitter: 1})
	seen := map[time.Duration]bool{}
	for range 20 {
		d := call(t.Context()).retry.GetRetryDelay().AsDuration()
		if d < 2500*time.Millisecond || d > 5*time.Second {
			t.Errorf("%v", d)
		}
		seen[d] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d different waits of 20", len(seen))
	}
}

func TestTheShedderIsAskedLast(t *testing.T) {
	g := &gatekeeper{}
	skip := false
	call := unary(t, grpclimit.Config{Shedder: g, Class: byMethod, Skip: func(context.Context, grpclimit.Call) bool { return skip }},
		grpclimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerHour(1)), Key: fixed("k")})
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if a := call(t.Context()); a.code != want {
			t.Errorf("call %d: %+v, want %v", i, a, want)
		}
	}
	skip = true
	if a := call(t.Context()); !a.served || len(g.asked) != 1 {
		t.Errorf("%+v, asked for %q", a, g.asked)
	}
}

func TestThePlaceIsHeldUntilTheHandlerEnds(t *testing.T) {
	g := &gatekeeper{}
	intercept, err := grpclimit.UnaryServer(grpclimit.Config{Shedder: g, Class: byMethod}, grpclimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("k")})
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func() error{
		"return": func() error { return nil },
		"error":  func() error { return errors.New("of the handler") },
		"panic":  func() error { panic("of the handler") },
	} {
		within := 0
		func() {
			defer func() { recover() }()
			_, _ = intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/test.Service/Read"}, func(context.Context, any) (any, error) {
				within = g.held
				return nil, end()
			})
		}()
		if within != 1 || g.held != 0 {
			t.Errorf("%s: %d places held in the handler, %d after it", name, within, g.held)
		}
	}
}

// A Shedder without limits, and one for calls without a key.
func TestAShedderWithoutLimits(t *testing.T) {
	for name, limits := range map[string][]grpclimit.Limit{
		"no limit": nil,
		"no key":   {{Limiter: limittest.AllowAll(), Key: fixed("")}},
	} {
		g := &gatekeeper{}
		call := unary(t, grpclimit.Config{Shedder: g, Class: byMethod, NoKey: grpclimit.NoKeyPass, Logger: quiet}, limits...)
		if a := call(t.Context()); !a.served || a.err != nil || g.held != 0 || len(g.asked) != 1 {
			t.Errorf("%s: %+v, %+v", name, a, g)
		}
		g.shed = true
		if a := call(t.Context()); a.code != codes.Unavailable || a.served {
			t.Errorf("%s: shed %+v", name, a)
		}
	}
	g := &gatekeeper{}
	denied := unary(t, grpclimit.Config{Shedder: g, Class: byMethod, Logger: quiet}, grpclimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("")})
	if a := denied(t.Context()); a.code != codes.ResourceExhausted || len(g.asked) > 0 {
		t.Errorf("denied without a key: %+v, asked for %q", a, g.asked)
	}
}

func TestAShedderThatFails(t *testing.T) {
	for _, tc := range []struct {
		err     error
		failure grpclimit.Failure
		want    codes.Code
	}{
		{hybridlimit.ErrClosed, grpclimit.FailClosed, codes.Unavailable},
		{hybridlimit.ErrClosed, grpclimit.FailOpen, codes.OK},
		{errors.New("another"), grpclimit.FailOpen, codes.Unavailable},
	} {
		var log lines
		limiter := newLocal(t, "api", hybridlimit.PerHour(1))
		call := unary(t, grpclimit.Config{Shedder: &gatekeeper{err: tc.err}, Class: byMethod, Failure: tc.failure, Logger: log.logger()},
			grpclimit.Limit{Limiter: limiter, Key: fixed("k")})
		if a := call(t.Context()); a.code != tc.want || a.retry != nil || a.pushback != "" || log.count() != 1 {
			t.Errorf("%v, %v: %+v, want %v; log: %s", tc.err, tc.failure, a, tc.want, log.String())
		}
		res, err := limiter.PeekN(t.Context(), "k", 1)
		if back := tc.want != codes.OK; err != nil || res.Allowed != back {
			t.Errorf("%v, %v: the unit is back: %v, want %v", tc.err, tc.failure, res.Allowed, back)
		}
	}
}

// A client that leaves while its call waits for a place is no failure, and gets its
// unit back.
func TestAClientThatLeavesTheShedder(t *testing.T) {
	var log lines
	limiter := newLocal(t, "api", hybridlimit.PerHour(1))
	ctx, leave := context.WithCancel(t.Context())
	call := unary(t, grpclimit.Config{Shedder: leaves{leave}, Class: byMethod, Failure: grpclimit.FailOpen, Logger: log.logger()},
		grpclimit.Limit{Limiter: limiter, Key: fixed("k")})
	if a := call(ctx); a.code != codes.Canceled || a.served || log.count() > 0 {
		t.Errorf("%+v; log: %s", a, log.String())
	}
	if res, err := limiter.PeekN(t.Context(), "k", 1); err != nil || !res.Allowed {
		t.Errorf("the unit is not back: %+v, %v", res, err)
	}
}

// leaves is a Shedder whose client leaves while it waits.
type leaves struct{ leave func() }

func (l leaves) Acquire(ctx context.Context, _ string) (hybridlimit.Permit, hybridlimit.Result, error) {
	l.leave()
	return hybridlimit.Permit{}, hybridlimit.Result{}, ctx.Err()
}

// StreamServer does not ask the Shedder.
func TestStreamsAreNotShed(t *testing.T) {
	g := &gatekeeper{shed: true}
	a, received := streamed(t.Context(), t, grpclimit.Config{Shedder: g, Class: byMethod}, 3, grpclimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("k")})
	if a.err != nil || received != 3 || len(g.asked) > 0 {
		t.Errorf("%+v, %d received, asked for %q", a, received, g.asked)
	}
}

func TestShedderViolations(t *testing.T) {
	var none *gatekeeper
	_, err := grpclimit.UnaryServer(grpclimit.Config{Shedder: none})
	const want = "grpclimit: Config.Shedder (<nil>) must not be a nil pointer; Config.Class (<nil>) is required with Config.Shedder"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	const needed = `limits ("none")`
	if _, err := grpclimit.UnaryServer(grpclimit.Config{Class: byMethod}); err == nil || !strings.Contains(err.Error(), needed) {
		t.Errorf("neither limits nor a shedder: %v", err)
	}
	if _, err := grpclimit.StreamServer(grpclimit.Config{Shedder: &gatekeeper{}, Class: byMethod}); err == nil || !strings.Contains(err.Error(), needed) {
		t.Errorf("streams without limits: %v", err)
	}
}
