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
func chained(t *testing.T, around ...grpc.UnaryServerInterceptor) {
	t.Helper()
	info := &grpc.UnaryServerInfo{FullMethod: "/test.Service/Method"}
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

// A call that meets the same limit twice counts once, from the first call on and after many. It counted twice. One
// interceptor that stands in a chain twice still counts twice: it cannot know its places.
func TestSameLimitTwice(t *testing.T) {
	const calls = 100
	costs := func(n int64) func(context.Context, grpclimit.Call) int64 {
		return func(context.Context, grpclimit.Call) int64 { return n }
	}
	for name, tc := range map[string]struct {
		limits func(l, other hybridlimit.Limiter) []grpclimit.Limit // one interceptor for each
		again  bool                                                 // the last interceptor once more
		want   int64                                                // units of a call
	}{
		"the same interceptor": {func(l, _ hybridlimit.Limiter) []grpclimit.Limit {
			return []grpclimit.Limit{{Limiter: l, Key: fixed("k")}}
		}, true, 2},
		"three interceptors": {func(l, _ hybridlimit.Limiter) []grpclimit.Limit {
			limit := grpclimit.Limit{Limiter: l, Key: fixed("k")}
			return []grpclimit.Limit{limit, limit, limit}
		}, false, 1},
		"two interceptors, one of them twice": {func(l, _ hybridlimit.Limiter) []grpclimit.Limit {
			return []grpclimit.Limit{{Limiter: l, Key: fixed("k")}, {Limiter: l, Key: fixed("k")}}
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
			around = append(around, around[len(around)-1])
		}
		for i := range int64(calls) {
			chained(t, around...)
			if got := used(t, l, "k"); got != (i+1)*tc.want {
				t.Errorf("%s: %d units after %d calls, want %d", name, got, i+1, (i+1)*tc.want)
				break
			}
		}
		if name == "another key" && used(t, l, "other") != calls || name == "another limiter" && used(t, other, "k") != calls {
			t.Errorf("%s: the other limit has not counted", name)
		}
	}
}

// A stream and its messages count once too, each message with its largest cost.
func TestSameLimitTwiceOfAStream(t *testing.T) {
	for name, tc := range map[string]struct {
		outer, inner grpclimit.Limit
		want         int64
	}{
		"start":               {grpclimit.Limit{}, grpclimit.Limit{}, 1},
		"messages":            {grpclimit.Limit{PerMessage: true}, grpclimit.Limit{PerMessage: true}, 3},
		"start and messages":  {grpclimit.Limit{}, grpclimit.Limit{PerMessage: true}, 4},
		"dear and cheap":      {priced(5), priced(2), 15},
		"cheap and dear":      {priced(2), priced(5), 15},
		"one unit and dear":   {grpclimit.Limit{PerMessage: true}, priced(5), 15},
		"free and a unit":     {priced(0), grpclimit.Limit{PerMessage: true}, 3},
		"of different prices": {priced(1, 5, 2), priced(4, 3, 2), 11},
	} {
		l := newLocal(t, "api", hybridlimit.PerHour(1000))
		var around []grpc.StreamServerInterceptor
		for _, limit := range []grpclimit.Limit{tc.outer, tc.inner} {
			limit.Limiter, limit.Key = l, fixed("k")
			intercept, err := grpclimit.StreamServer(grpclimit.Config{}, limit)
			if err != nil {
				t.Fatal(err)
			}
			around = append(around, intercept)
		}
		info := &grpc.StreamServerInfo{FullMethod: "/test.Service/Stream"}
		for i := range int64(30) {
			err := around[0](nil, &messages{ctx: t.Context(), left: 3}, info, func(srv any, ss grpc.ServerStream) error {
				return around[1](srv, ss, info, func(_ any, ss grpc.ServerStream) error {
					var err error
					for err == nil {
						err = ss.RecvMsg(new(int))
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

// priced returns a limit on messages that cost these units in turn.
func priced(units ...int64) grpclimit.Limit {
	n := 0
	return grpclimit.Limit{PerMessage: true, Cost: func(context.Context, grpclimit.Call) int64 {
		n++
		return units[(n-1)%len(units)]
	}}
}

// A limiter in an interceptor of unary calls and one of streams has one place in each, so calls pass unmarked.
func TestOnePlaceOfEachKind(t *testing.T) {
	limit := grpclimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerHour(1000)), Key: fixed("k")}
	unary, err := grpclimit.UnaryServer(grpclimit.Config{}, limit)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := grpclimit.StreamServer(grpclimit.Config{}, limit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unary(t.Context(), nil, nil, func(ctx context.Context, _ any) (any, error) {
		if ctx != t.Context() {
			t.Error("the call is marked")
		}
		return nil, nil
	}); err != nil {
		t.Error(err)
	}
	ss := &messages{ctx: t.Context()}
	if err := stream(nil, ss, nil, func(_ any, got grpc.ServerStream) error {
		if got != ss {
			t.Error("the stream is marked")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
