package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// A denial names its wait and its policy, and never the key. The pushback is the
// wait in milliseconds, rounded up, or -1 if waiting does not help.
func TestDenial(t *testing.T) {
	for name, tc := range map[string]struct {
		res      hybridlimit.Result
		deadline time.Duration // 0: none
		code     codes.Code
		retry    time.Duration // 0: no RetryInfo
		pushback string
		policies string
	}{
		"a wait":             {hybridlimit.Result{RetryAfter: 1500 * time.Millisecond, Policy: "api", Source: hybridlimit.SourceRedis}, 0, codes.ResourceExhausted, 1500 * time.Millisecond, "1500", "api"},
		"rounded up":         {hybridlimit.Result{RetryAfter: 1500*time.Microsecond + 1, Policy: "api", Source: hybridlimit.SourceRedis}, 0, codes.ResourceExhausted, 1500*time.Microsecond + 1, "2", "api"},
		"at least 1 ms":      {hybridlimit.Result{RetryAfter: 0, Policy: "api", Source: hybridlimit.SourceLease}, 0, codes.ResourceExhausted, time.Millisecond, "1", "api"},
		"below 0":            {hybridlimit.Result{RetryAfter: math.MinInt64, Policy: "api", Source: hybridlimit.SourceLease}, 0, codes.ResourceExhausted, time.Millisecond, "1", "api"},
		"never":              {hybridlimit.Result{RetryAfter: hybridlimit.Never, Policy: "api", Source: hybridlimit.SourceStatic}, 0, codes.ResourceExhausted, 0, "-1", "api"},
		"nearly never":       {hybridlimit.Result{RetryAfter: hybridlimit.Never - 1, Policy: "api", Source: hybridlimit.SourceRedis}, 0, codes.ResourceExhausted, hybridlimit.Never - 1, "9223372036855", "api"},
		"within a deadline":  {hybridlimit.Result{RetryAfter: time.Second, Policy: "api", Source: hybridlimit.SourceRedis}, time.Hour, codes.ResourceExhausted, time.Second, "1000", "api"},
		"beyond a deadline":  {hybridlimit.Result{RetryAfter: 2 * time.Hour, Policy: "api", Source: hybridlimit.SourceRedis}, time.Hour, codes.ResourceExhausted, 2 * time.Hour, "-1", "api"},
		"without a name":     {hybridlimit.Result{RetryAfter: time.Second, Source: hybridlimit.SourceRedis}, 0, codes.ResourceExhausted, time.Second, "1000", "default"},
		"by the fallback":    {hybridlimit.Result{RetryAfter: time.Second, Policy: "api", Source: hybridlimit.SourceFallback}, 0, codes.ResourceExhausted, time.Second, "1000", "api"},
		"without an answer":  {hybridlimit.Result{RetryAfter: time.Second, Policy: "api", Source: hybridlimit.SourceTimeout}, 0, codes.Unavailable, time.Second, "1000", ""},
		"the source unknown": {hybridlimit.Result{RetryAfter: time.Second, Policy: "api"}, 0, codes.ResourceExhausted, time.Second, "1000", "api"},
	} {
		ctx := t.Context()
		if tc.deadline > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, tc.deadline)
			defer cancel()
		}
		limit := grpclimit.Limit{Limiter: limittest.Play(tc.res, tc.res, tc.res), Key: fixed("secret@example.com")}
		a := unary(t, grpclimit.Config{}, limit)(ctx)
		b, _ := streamed(ctx, t, grpclimit.Config{}, 1, limit)
		limit.PerMessage = true
		c, received := streamed(ctx, t, grpclimit.Config{}, 1, limit)
		for kind, got := range map[string]answer{"unary": a, "stream": b, "message": c} {
			var retry time.Duration
			if got.retry != nil {
				retry = got.retry.GetRetryDelay().AsDuration()
			}
			if got.code != tc.code || retry != tc.retry || got.pushback != tc.pushback || got.policies() != tc.policies || got.served != (kind == "message") {
				t.Errorf("%s, %s: %v, retry after %v, pushback %q, policies %q, served %t", name, kind, got.err, retry, got.pushback, got.policies(), got.served)
			}
			for _, v := range got.quota.GetViolations() {
				if v.GetSubject() != v.GetQuotaId() || v.GetDescription() == "" {
					t.Errorf("%s, %s: %v", name, kind, v)
				}
			}
			if strings.Contains(fmt.Sprint(got.err, got.quota), "secret@") {
				t.Errorf("%s, %s: the key is in %v, %v", name, kind, got.err, got.quota)
			}
		}
		if received != 0 {
			t.Errorf("%s: the denied message was received", name)
		}
	}
}

// Jitter lengthens both waits by the same random fraction, and never overflows.
func TestJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	call := unary(t, grpclimit.Config{Jitter: 0.5}, grpclimit.Limit{Limiter: limittest.DenyAll(10 * time.Second), Key: fixed("k")})
	for range 100 {
		a := call(t.Context())
		d := a.retry.GetRetryDelay().AsDuration()
		if ms, err := strconv.ParseInt(a.pushback, 10, 64); err != nil || d < 10*time.Second || d > 15*time.Second || ms != int64((d+time.Millisecond-1)/time.Millisecond) {
			t.Fatalf("%v, pushback %q", d, a.pushback)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different waits of 100", len(seen))
	}
	huge := unary(t, grpclimit.Config{Jitter: 1}, grpclimit.Limit{Limiter: limittest.DenyAll(hybridlimit.Never - 1), Key: fixed("k")})
	for range 100 {
		if d := huge(t.Context()).retry.GetRetryDelay().AsDuration(); d < hybridlimit.Never-1 {
			t.Fatal(d)
		}
	}
	if a := unary(t, grpclimit.Config{Jitter: 1}, grpclimit.Limit{Limiter: limittest.DenyAll(hybridlimit.Never), Key: fixed("k")})(t.Context()); a.retry != nil || a.pushback != "-1" {
		t.Errorf("%+v", a)
	}
}

// A limit in shadow admits, and Skip exempts a call.
func TestCallsThatPass(t *testing.T) {
	denied := hybridlimit.Result{Allowed: true, Shadowed: true, Granted: 1, RetryAfter: time.Minute, Source: hybridlimit.SourceRedis, Policy: "api"}
	shadow := limittest.Play(denied, denied, denied)
	call := unary(t, grpclimit.Config{}, grpclimit.Limit{Limiter: shadow, Key: fixed("k")})
	for range 3 {
		if a := call(t.Context()); a.err != nil || !a.served || a.pushback != "" {
			t.Errorf("shadow: %+v", a)
		}
	}
	deny := limittest.Record(limittest.DenyAll(time.Second))
	limit := grpclimit.Limit{Limiter: deny, Key: fixed("k")}
	skip := grpclimit.Config{Skip: func(_ context.Context, c grpclimit.Call) bool { return strings.HasPrefix(c.Method, "/test.Service/") }}
	a := unary(t, skip, limit)(t.Context())
	b, received := streamed(t.Context(), t, skip, 3, limit)
	if a.err != nil || b.err != nil || !a.served || received != 3 || len(deny.Calls()) > 0 {
		t.Errorf("skipped: %+v, %+v, %d", a, b, received)
	}
	limit.Cost = func(context.Context, grpclimit.Call) int64 { return 0 }
	if a := unary(t, grpclimit.Config{}, limit)(t.Context()); a.err != nil || len(deny.Calls()) > 0 {
		t.Errorf("free: %+v", a)
	}
	limit.Cost = func(_ context.Context, c grpclimit.Call) int64 { return int64(len(c.Request.(string))) }
	if a := unary(t, grpclimit.Config{}, limit)(t.Context()); a.code != codes.ResourceExhausted || deny.Calls()[0].N != int64(len("request")) {
		t.Errorf("%+v, %v", a, deny.Calls())
	}
}

// Config.NoKey answers a call without a key, independent of Failure, and no limit is
// asked.
func TestNoKey(t *testing.T) {
	for answer, want := range map[grpclimit.NoKey]struct {
		code            codes.Code
		level, pushback string
	}{
		grpclimit.NoKeyDeny:                       {codes.ResourceExhausted, "WARN", "-1"},
		grpclimit.NoKeyPass:                       {codes.OK, "DEBUG", ""},
		grpclimit.NoKey(codes.Unauthenticated):    {codes.Unauthenticated, "WARN", "-1"},
		grpclimit.NoKey(codes.FailedPrecondition): {codes.FailedPrecondition, "WARN", "-1"},
	} {
		for _, failure := range []grpclimit.Failure{grpclimit.FailClosed, grpclimit.FailOpen} {
			for _, required := range []bool{false, true} {
				if required && answer == grpclimit.NoKeyPass {
					continue // refused
				}
				var log lines
				recorder := limittest.Record(limittest.DenyAll(time.Minute))
				limits := []grpclimit.Limit{{Limiter: recorder, Key: grpclimit.Metadata("x-api-key", ""), Required: required, Name: "user"}}
				if required {
					limits = append([]grpclimit.Limit{{Limiter: recorder, Key: grpclimit.Everyone(), Name: "all"}}, limits...)
				}
				cfg := grpclimit.Config{NoKey: answer, Failure: failure, Logger: log.logger()}
				a := unary(t, cfg, limits...)(t.Context())
				b, _ := streamed(t.Context(), t, cfg, 0, limits...)
				for _, got := range []struct {
					code     codes.Code
					served   bool
					pushback string
					retry    bool
				}{{a.code, a.served, a.pushback, a.retry != nil}, {b.code, b.served, b.pushback, b.retry != nil}} {
					if got.code != want.code || got.served != (want.code == codes.OK) || got.pushback != want.pushback || got.retry || len(recorder.Calls()) > 0 {
						t.Errorf("%v, %v, required %t: %+v", answer, failure, required, got)
					}
				}
				if want.code == codes.ResourceExhausted && a.quota == nil {
					t.Errorf("no details tell it from a ResourceExhausted of gRPC")
				}
				for _, part := range []string{"level=" + want.level, "method=/test.Service/Method", "remedy=", "answer=" + answer.String()} {
					if !strings.Contains(log.String(), part) {
						t.Errorf("%s is not in the log:\n%s", part, log.String())
					}
				}
			}
		}
	}
}

// Limits that are Joint are asked together: a denied call costs nothing. Others are
// asked in turn, and get their units back.
func TestSeveralLimits(t *testing.T) {
	user, all := newLocal(t, "user", hybridlimit.PerHour(5)), newLocal(t, "all", hybridlimit.PerHour(2))
	for name, second := range map[string]hybridlimit.Limiter{"together": all, "in turn": struct{ hybridlimit.Limiter }{newLocal(t, "all", hybridlimit.PerHour(2))}} {
		call := unary(t, grpclimit.Config{}, grpclimit.Limit{Limiter: user, Key: fixed(name)}, grpclimit.Limit{Limiter: second, Key: fixed("all"), Name: "all"})
		for i := range 4 {
			a := call(t.Context())
			if want := i >= 2; (a.code == codes.ResourceExhausted) != want || want && a.policies() != "all" {
				t.Errorf("%s, call %d: %+v", name, i, a)
			}
		}
		if left, err := user.Peek(t.Context(), name); err != nil || left.Remaining != 3 {
			t.Errorf("%s: %d left, want 3 (%v)", name, left.Remaining, err)
		}
	}
}

// A limit comes with the call.
func TestOf(t *testing.T) {
	plans := map[string]hybridlimit.Limit{"small": hybridlimit.PerHour(1), "blocked": hybridlimit.Blocked(), "bad": {Rate: -1}}
	limiter := newLocal(t, "api", hybridlimit.PerHour(100))
	for plan, want := range map[string][2]codes.Code{
		"small": {codes.OK, codes.ResourceExhausted}, "blocked": {codes.ResourceExhausted, codes.ResourceExhausted},
		"bad": {codes.Unavailable, codes.Unavailable}, "none": {codes.OK, codes.OK},
	} {
		call := unary(t, grpclimit.Config{Logger: quiet}, grpclimit.Limit{Limiter: limiter, Key: fixed(plan), Of: func(context.Context, grpclimit.Call) (hybridlimit.Limit, bool) {
			l, ok := plans[plan]
			return l, ok
		}})
		for i, code := range want {
			if a := call(t.Context()); a.code != code {
				t.Errorf("%s, call %d: %v", plan, i, a.err)
			}
		}
	}
}

// A queue delays calls. A deadline before the call's place, or a client that leaves,
// ends the wait and frees the place.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newLocal(t, "queue", hybridlimit.LeakyQueue(1, time.Second, 3))
		call := unary(t, grpclimit.Config{Logger: quiet}, grpclimit.Limit{Limiter: queue, Key: fixed("k")})
		start := time.Now()
		call(t.Context())
		if a := call(t.Context()); a.err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", a.err, time.Since(start))
		}
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if a := call(soon); a.code != codes.DeadlineExceeded || a.served {
			t.Errorf("%+v", a)
		}
		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		if a := call(leaving); a.code != codes.Canceled || a.served {
			t.Errorf("%+v", a)
		}
		if left, err := queue.Peek(t.Context(), "k"); err != nil || left.Remaining < 2 {
			t.Errorf("%d places left: the ended calls keep theirs (%v)", left.Remaining, err)
		}
	})
}

// Every violation is in one error.
func TestViolations(t *testing.T) {
	var none *local.Limiter
	cfg := grpclimit.Config{Failure: 9, NoKey: 17, Jitter: math.NaN()}
	limits := []grpclimit.Limit{
		{Limiter: none},
		{Name: "no spaces", Required: true},
		{Limiter: limittest.AllowAll(), Key: fixed("k"), Of: func(context.Context, grpclimit.Call) (hybridlimit.Limit, bool) { return hybridlimit.Limit{}, false }},
	}
	_, unaryErr := grpclimit.UnaryServer(cfg, limits...)
	_, streamErr := grpclimit.StreamServer(cfg, limits...)
	for _, err := range []error{unaryErr, streamErr} {
		if !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Fatal(err)
		}
		for _, want := range []string{"Config.Failure (9)", "Config.NoKey (17)", "Config.Jitter (NaN)", "limits[0].Limiter", "limits[0].Key", "limits[1].Limiter", "limits[1].Key", `limits[1].Name ("no spaces")`, "limits[2].Of"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s is not in %v", want, err)
			}
		}
	}
	if _, err := grpclimit.UnaryServer(grpclimit.Config{}); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Error("no limits:", err)
	}
	if _, err := grpclimit.UnaryServer(grpclimit.Config{NoKey: grpclimit.NoKeyPass}, grpclimit.Limit{Limiter: limittest.AllowAll(), Key: fixed("k"), Required: true}); err == nil || !strings.Contains(err.Error(), "limits[0].Required") {
		t.Error(err)
	}
}

// Nil values that gRPC or a test may pass, and a handler that panics.
func TestNilsAndPanics(t *testing.T) {
	intercept, err := grpclimit.UnaryServer(grpclimit.Config{}, grpclimit.Limit{Limiter: limittest.AllowAll(), Key: grpclimit.Everyone()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := intercept(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
	denies, err := grpclimit.UnaryServer(grpclimit.Config{}, grpclimit.Limit{Limiter: limittest.DenyAll(time.Second), Key: grpclimit.Everyone()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := denies(t.Context(), nil, nil, nil); err == nil { // no transport: there is no trailer
		t.Error("admitted")
	}
	stream, err := grpclimit.StreamServer(grpclimit.Config{}, grpclimit.Limit{Limiter: limittest.AllowAll(), Key: grpclimit.Method()})
	if err != nil {
		t.Fatal(err)
	}
	if err := stream(nil, &messages{ctx: t.Context()}, nil, func(any, grpc.ServerStream) error { return nil }); err != nil {
		t.Error(err)
	}
	defer func() {
		if p := recover(); p != "handler" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, _ = intercept(t.Context(), nil, nil, func(context.Context, any) (any, error) { panic("handler") })
}

// Failures have log lines without the key, with the words of gRPC.
func TestLog(t *testing.T) {
	var log lines
	bad := newLocal(t, "api", hybridlimit.PerHour(1))
	call := unary(t, grpclimit.Config{Logger: log.logger()}, grpclimit.Limit{Limiter: bad, Key: fixed(strings.Repeat("secret", 1<<10))})
	down := unary(t, grpclimit.Config{Logger: log.logger()}, grpclimit.Limit{Limiter: failing{fmt.Errorf("%w: key %q", hybridlimit.ErrUnavailable, "secret")}, Key: fixed("secret")})
	for range 3 {
		call(t.Context())
		down(t.Context())
	}
	for _, want := range []string{`msg="grpclimit: a call has an invalid key or cost; it is answered InvalidArgument"`, `msg="grpclimit: a limiter failed"`, "[key]"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in the log:\n%s", want, log.String())
		}
	}
	if log.count() != 2 || strings.Contains(log.String(), "secret") {
		t.Errorf("the log is:\n%s", log.String())
	}
}
