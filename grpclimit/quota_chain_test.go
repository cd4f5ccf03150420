package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// Interceptors inside each other send one value with all their limits. After a denial inside, nothing is left of the
// limits around it but their policies. An interceptor without Quota tells nothing.
func TestQuotaOfAChain(t *testing.T) {
	bucket := func(name string, n int64) grpclimit.Limit {
		return grpclimit.Limit{Limiter: newLocal(t, name, hybridlimit.TokenBucket(1, time.Hour, n)), Key: fixed("k")}
	}
	quota := grpclimit.Config{Quota: true}
	for name, tc := range map[string]struct {
		outer, inner grpclimit.Config
		first, next  said
	}{
		"both": {
			quota, quota,
			said{codes.OK, `"outer";r=8;t=28800, "inner";r=0;t=3600|"outer";q=9;w=32400, "inner";q=1;w=3600`, ""},
			said{codes.ResourceExhausted, "", `"inner";r=0;t=3600|"outer";q=9;w=32400, "inner";q=1;w=3600`},
		},
		"the outer": {
			quota,
			grpclimit.Config{},
			said{codes.OK, `"outer";r=8;t=28800|"outer";q=9;w=32400`, ""},
			said{codes.ResourceExhausted, "", `"outer";r=7;t=25200|"outer";q=9;w=32400`},
		},
		"the inner": {
			grpclimit.Config{},
			quota,
			said{codes.OK, `"inner";r=0;t=3600|"inner";q=1;w=3600`, ""},
			said{codes.ResourceExhausted, "", `"inner";r=0;t=3600|"inner";q=1;w=3600`},
		},
	} {
		for kind, send := range map[string]func(*testing.T, grpc_testing.TestServiceClient) said{
			"unary": callOnce, "stream": func(t *testing.T, c grpc_testing.TestServiceClient) said { t.Helper(); return talk(t, c, 3) },
		} {
			chain := append(guard(t, tc.outer, bucket("outer", 9)), guard(t, tc.inner, bucket("inner", 1))...)
			client := act(t, &acting{unary: fine, stream: echo}, chain)
			if got := send(t, client); got != tc.first {
				t.Errorf("%s, %s: %+v, want %+v", name, kind, got, tc.first)
			}
			if got := send(t, client); got != tc.next {
				t.Errorf("%s, %s, denied: %+v, want %+v", name, kind, got, tc.next)
			}
		}
	}
}

// A limit that a call meets twice is told once.
func TestQuotaOfTheSameLimitTwice(t *testing.T) {
	limit := grpclimit.Limit{Limiter: newLocal(t, "api", hybridlimit.TokenBucket(1, time.Hour, 5)), Key: fixed("k")}
	chain := append(guard(t, grpclimit.Config{Quota: true}, limit), guard(t, grpclimit.Config{Quota: true}, limit)...)
	client := act(t, &acting{unary: fine, stream: echo}, chain)
	if got := callOnce(t, client); got != (said{codes.OK, `"api";r=4;t=14400|"api";q=5;w=18000`, ""}) {
		t.Errorf("%+v", got)
	}
	if got := talk(t, client, 2); got != (said{codes.OK, `"api";r=3;t=10800|"api";q=5;w=18000`, ""}) {
		t.Errorf("%+v", got)
	}
}

// A stream tells the limits of its start. A message that is denied before the first answer replaces them in the
// trailer; one that is denied later is not told, because gRPC would append it.
func TestQuotaOfMessages(t *testing.T) {
	start := grpclimit.Limit{Limiter: newLocal(t, "starts", hybridlimit.TokenBucket(1, time.Hour, 9)), Key: fixed("k")}
	each := grpclimit.Limit{Limiter: newLocal(t, "each", hybridlimit.TokenBucket(1, time.Hour, 2)), Key: fixed("k"), PerMessage: true}
	client := act(t, &acting{unary: fine, stream: echo}, guard(t, grpclimit.Config{Quota: true}, start, each))
	if got := talk(t, client, 3); got != (said{codes.ResourceExhausted, `"starts";r=8;t=28800|"starts";q=9;w=32400`, ""}) {
		t.Errorf("%+v", got)
	}
	if got := talk(t, client, 1); got != (said{codes.ResourceExhausted, "", `"each";r=0;t=3600|"starts";q=9;w=32400, "each";q=2;w=7200`}) {
		t.Errorf("%+v", got)
	}
}

// A call that is shed, or has no key, tells nothing of the limits that have admitted it.
func TestQuotaOfRefusals(t *testing.T) {
	outer := grpclimit.Limit{Limiter: newLocal(t, "outer", hybridlimit.PerHour(9)), Key: fixed("k")}
	for name, tc := range map[string]struct {
		cfg   grpclimit.Config
		limit grpclimit.Limit
		code  codes.Code
	}{
		"no key": {grpclimit.Config{}, grpclimit.Limit{Limiter: newLocal(t, "a", hybridlimit.PerHour(9)), Key: fixed("")}, codes.ResourceExhausted},
		"shed": {
			grpclimit.Config{Class: byMethod, Shedder: full{}},
			grpclimit.Limit{Limiter: newLocal(t, "b", hybridlimit.PerHour(9)), Key: fixed("k")},
			codes.Unavailable,
		},
		"no answer": {grpclimit.Config{}, grpclimit.Limit{Limiter: failing{hybridlimit.ErrClosed}, Name: "c", Key: fixed("k")}, codes.Unavailable},
	} {
		tc.cfg.Quota = true
		chain := append(guard(t, grpclimit.Config{Quota: true}, outer), guard(t, tc.cfg, tc.limit)...)
		if got := callOnce(t, act(t, &acting{unary: fine, stream: echo}, chain)); got != (said{tc.code, "", ""}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// full is a Shedder without a place.
type full struct{}

func (full) Acquire(context.Context, string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return hybridlimit.Permit{}, hybridlimit.Result{RetryAfter: time.Second}, nil
}

// gRPC's own retries work with Quota: after a denial inside another interceptor, and after a failure of the handler. A
// header would stop them.
func TestRetriesOfGRPCWithQuota(t *testing.T) {
	deny := hybridlimit.Result{RetryAfter: time.Millisecond, Source: hybridlimit.SourceRedis, Policy: "api"}
	admit := hybridlimit.Result{Allowed: true, Granted: 1, Limit: 9, Source: hybridlimit.SourceRedis, Policy: "api"}
	calls := 0
	unary := func(context.Context) error {
		if calls++; calls == 1 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return nil
	}
	chain := append(guard(t, grpclimit.Config{Quota: true}, grpclimit.Limit{Limiter: newLocal(t, "outer", hybridlimit.PerHour(9)), Key: fixed("k")}),
		guard(t, grpclimit.Config{Quota: true}, grpclimit.Limit{Limiter: limittest.Play(deny, admit, admit), Key: fixed("k")})...)
	client := act(t, &acting{unary: unary, stream: echo}, chain, grpc.WithDefaultServiceConfig(retries))
	if got := callOnce(t, client); got.code != codes.OK || calls != 2 || got.header == "" {
		t.Errorf("%+v after %d calls of the handler", got, calls)
	}
}
