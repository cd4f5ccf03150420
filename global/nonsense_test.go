package global_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestNonsenseIsUnavailable checks that a call returns ErrUnavailable, and the decision of
// FailOpen, if Redis sends an invalid reply.
func TestNonsenseIsUnavailable(t *testing.T) {
	var reply atomic.Value
	addr := redistest.Odd(t, func([]string) string { return reply.Load().(string) })
	for _, functions := range []bool{false, true} {
		rdb := redistest.Client(t, addr, func(o *redis.Options) { o.ReadTimeout = 50 * time.Millisecond })
		l, err := global.New(rdb, hybridlimit.PerSecond(10), global.Config{Name: "api", Functions: functions, FailOpen: true, Timeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx := t.Context()
		for _, text := range redistest.Nonsense {
			reply.Store(text)
			for verb, ask := range map[string]func() (hybridlimit.Result, error){
				"Allow":       func() (hybridlimit.Result, error) { return l.Allow(ctx, "k") },
				"AllowAtMost": func() (hybridlimit.Result, error) { return l.AllowAtMost(ctx, "k", 3) },
			} {
				res, err := ask()
				if !errors.Is(err, hybridlimit.ErrUnavailable) || !res.Allowed || res.Source != hybridlimit.SourceFallback {
					t.Errorf("%q: %s %+v, %v", text, verb, res, err)
				}
			}
			if _, err := l.Peek(ctx, "k"); !errors.Is(err, hybridlimit.ErrUnavailable) {
				t.Errorf("%q: Peek %v", text, err)
			}
			if err := l.Reset(ctx, "k"); !errors.Is(err, hybridlimit.ErrUnavailable) {
				t.Errorf("%q: Reset %v", text, err)
			}
		}
	}
}

// TestNumbersThatMeanNothing checks replies of the right shape with random numbers: no
// panic, no negative time, and no more units than the call asked for.
func TestNumbersThatMeanNothing(t *testing.T) {
	rng := testenv.Rand(t)
	var reply atomic.Value
	addr := redistest.Odd(t, func([]string) string { return reply.Load().(string) })
	rdb := redistest.Client(t, addr)
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.PerSecond(10), hybridlimit.LeakyQueue(10, time.Second, 5), hybridlimit.FixedWindow(5, time.Minute),
		hybridlimit.SlidingWindow(5, time.Minute), hybridlimit.SlidingLog(5, time.Minute),
	} {
		l, err := global.New(rdb, limit, global.Config{Name: "api"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for range testenv.Runs(300, 20_000) {
			reply.Store(redistest.Numbers(rng, 1))
			res, err := l.AllowN(t.Context(), "k", 3)
			if res.RetryAfter < 0 || res.ResetAfter < 0 || res.Delay < 0 || err != nil && !errors.Is(err, hybridlimit.ErrUnavailable) || res.Allowed && res.Granted != 3 {
				t.Errorf("%q: %+v, %v", reply.Load(), res, err)
			}
		}
	}
}
