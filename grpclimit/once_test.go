package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// chained makes a unary call through interceptors.
func chained(t *testing.T, method string, around ...grpc.UnaryServerInterceptor) {
	t.Helper()
	info := &grpc.UnaryServerInfo{FullMethod: method}
	handler := func(context.Context, any) (any, error) { return "reply", nil }
	for i := len(around) - 1; i >= 0; i-- {
		next := handler
		handler = func(ctx context.Context, req any) (any, error) { return around[i](ctx, req, info, next) }
	}
	if _, err := handler(t.Context(), "request"); err != nil {
		t.Error(err)
	}
}

func used(t *testing.T, l *local.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit - res.Remaining
}

// A call that meets the same limit twice counts once, from the first call on and after many. It counted twice.
func TestSameLimitTwice(t *testing.T) {
	const calls = 100
	costs := func(n int64) func(context.Context, grpclimit.Call) int64 {
		return func(context.Context, grpclimit.Call) int64 { return n }
	}
	for name, tc := range map[string]struct {
		limits func(l, other hybridlimit.Limiter) []grpclimit.Limit // one interceptor for each
		again  bool                                                 // the first interceptor once more
		want   int64                                                // units of a call
	}{
		"the same interceptor": {func(l, _ hybridlimit.Limiter) []grpclimit.Limit {
			return []grpclimit.Limit{{Limiter: l, Key: fixed("k")}}
		}, true, 1},
		"two interceptors": {func(l, _ hybridlimit.Limiter) []grpclimit.Limit {
			return []grpclimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("k")}}
		}, false, 1},
		"another key": {func(l, _ hybridlimit.Limiter) []grpclimit.Limit {
			return []grpclimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("other")}}
		}, false, 1},
		"another limiter": {func(l, other hybridlimit.Limiter) []grpclimit.Limit {
			return []grpclimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: other, Key: fixed("k")}}
		}, false, 1},
		"another name": {func(l, _ hybridlimit.Limiter) []grpclimit.Limit {
			return []grpclimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("k"), Name: "second"}}
		}, false, 2},
		"a larger cost inside": {func(l, _ hybridlimit.Limiter) []grpclimit.Limit {
			return []grpclimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("k"), Cost: costs(5)}}
		}, false, 5},
	} {
		l, other := newLocal(t, "api", hybridlimit.PerHour(1000)), newLocal(t, "other", hybridlimit.PerHour(1000))
		limits := tc.limits(l, other)
		var around []grpc.UnaryServerInterceptor
		for _, limit := range limits {
			intercept, err := grpclimit.UnaryServer(grpclimit.Config{}, limit)
			if err != nil {
				t.Fatal(err)
			}
			around = append(around, intercept)
		}
		if tc.again {
			around = append(around, around[0])
		}
		for i := range int64(calls) {
			chained(t, "/test.Service/Method", around...)
			if got := used(t, l, "k"); got != (i+1)*tc.want {
				t.Errorf("%s: %d units after %d calls, want %d", name, got, i+1, (i+1)*tc.want)
				break
			}
		}
		if name == "another key" && used(t, l, "other") != calls || name == "another limiter" && used(t, other, "k") != calls {
			t.Errorf("%s: the other limit has not counted", name)
		}
		// Another method has another chain.
		chained(t, "/test.Service/Other", around[0])
		if got := used(t, l, "k"); got != calls*tc.want+min(tc.want, 1) && tc.want == 1 {
			t.Errorf("%s: %d units after a call of another method", name, got)
		}
	}
}

// A stream and its messages count once too.
func TestSameLimitTwiceOfAStream(t *testing.T) {
	for name, tc := range map[string]struct {
		limit grpclimit.Limit
		want  int64
	}{
		"start":    {grpclimit.Limit{}, 1},
		"messages": {grpclimit.Limit{PerMessage: true}, 3},
		"priced": {grpclimit.Limit{PerMessage: true, Cost: func(context.Context, grpclimit.Call) int64 {
			return 2
		}}, 6},
	} {
		l := newLocal(t, "api", hybridlimit.PerHour(1000))
		tc.limit.Limiter, tc.limit.Key = l, fixed("k")
		outer, err := grpclimit.StreamServer(grpclimit.Config{}, tc.limit)
		if err != nil {
			t.Fatal(err)
		}
		info := &grpc.StreamServerInfo{FullMethod: "/test.Service/Stream"}
		for i := range int64(30) {
			err := outer(nil, &messages{ctx: t.Context(), left: 3}, info, func(srv any, ss grpc.ServerStream) error {
				return outer(srv, ss, info, func(_ any, ss grpc.ServerStream) error {
					for ss.RecvMsg(new(int)) == nil {
					}
					return nil
				})
			})
			if got := used(t, l, "k"); err != nil || got != (i+1)*tc.want {
				t.Errorf("%s: %v, %d units after %d streams, want %d", name, err, got, i+1, (i+1)*tc.want)
				break
			}
		}
	}
}
