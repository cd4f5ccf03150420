package local

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func TestLimitsThatCountNothing(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1e9, 0)
	for _, limit := range []hybridlimit.Limit{hybridlimit.Unlimited(), hybridlimit.Blocked()} {
		free := limit == hybridlimit.Unlimited()
		l := must(t, limit, Config{Name: "static"})
		want := hybridlimit.Result{Source: hybridlimit.SourceStatic, Policy: "static", RetryAfter: hybridlimit.Never}
		if free {
			want = hybridlimit.Result{
				Allowed: true, Source: hybridlimit.SourceStatic, Policy: "static",
				Limit: limit.BurstSize(), Remaining: limit.BurstSize(), Granted: 1 << 40,
			}
		}
		for verb, ask := range map[string]func() (hybridlimit.Result, error){
			"AllowN":      func() (hybridlimit.Result, error) { return l.AllowN(ctx, "k", 1<<40) },
			"AllowAtMost": func() (hybridlimit.Result, error) { return l.AllowAtMost(ctx, "k", 1<<40) },
			"AllowLimit":  func() (hybridlimit.Result, error) { return l.AllowLimit(ctx, "k", 1<<40, limit) },
			"Reserve": func() (hybridlimit.Result, error) {
				r, err := l.Reserve(ctx, "k", 1<<40)
				if err == nil {
					err = r.Cancel(ctx)
				}
				return r.Result, err
			},
		} {
			if res, err := ask(); err != nil || res != want {
				t.Errorf("%v, %s: %+v, %v, want %+v", limit, verb, res, err, want)
			}
		}
		if res, err := l.Peek(ctx, "k"); err != nil || res.Allowed != free || res.Granted != 0 {
			t.Errorf("%v, Peek: %+v, %v", limit, res, err)
		}
		if _, err := l.Wait(ctx, "k", 1); free != (err == nil) || !free && !errors.Is(err, hybridlimit.ErrExceedsBurst) {
			t.Errorf("%v, Wait: %v", limit, err)
		}
		_, charged := l.Charge(ctx, "k", 5)
		_, refunded := l.Refund(ctx, "k", 5)
		if err := errors.Join(charged, refunded, l.Reset(ctx, "k")); err != nil {
			t.Errorf("%v: %v", limit, err)
		}
		if l.Len() != 0 {
			t.Errorf("%v: %d keys are held, want none", limit, l.Len())
		}
		// The first limit that is not static sets the algorithm.
		if res, err := l.allowLimitAt(now, "k", 1, hybridlimit.FixedWindow(1, time.Second), ""); err != nil || !res.Allowed {
			t.Errorf("%v, then a window: %+v, %v", limit, res, err)
		}
		if _, err := l.allowLimitAt(now, "k", 1, hybridlimit.PerSecond(1), ""); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("%v, then a window, then a bucket: %v", limit, err)
		}
	}
}

// TestBlockingForAWhile checks that the usage of a key survives a time under Blocked, and
// that the units come back at the rate from before.
func TestBlockingForAWhile(t *testing.T) {
	eachAlgorithm(t, 4, 4*time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		l := must(t, limit, Config{})
		now := l.start
		for range 4 {
			if res, err := l.allowAt(now, "k", 1); err != nil || !res.Allowed {
				t.Fatal(res, err)
			}
		}
		before, err := l.peekAt(now, "k")
		if err != nil {
			t.Fatal(err)
		}
		for _, static := range []hybridlimit.Limit{hybridlimit.Blocked(), hybridlimit.Unlimited()} {
			if err := l.setLimitAt(now, static); err != nil {
				t.Fatal(err)
			}
			if res, err := l.allowAt(now, "k", 1); err != nil || res.Allowed != (static == hybridlimit.Unlimited()) {
				t.Error(static, res, err)
			}
		}
		if err := l.SetLimit(hybridlimit.Limit{Algorithm: (limit.Algorithm + 1) % 6, Rate: 1, Period: time.Second}); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Error("another algorithm after a static limit:", err)
		}
		if err := l.setLimitAt(now, limit); err != nil {
			t.Fatal(err)
		}
		if after, err := l.peekAt(now, "k"); err != nil || after != before {
			t.Errorf("%+v, %v, was %+v", after, err, before)
		}
		now = now.Add(before.ResetAfter)
		if res, err := l.allowAt(now, "k", 4); err != nil || !res.Allowed {
			t.Error("the units did not come back:", res, err)
		}
	})
}

func TestSomeKeysAreBlocked(t *testing.T) {
	ctx := context.Background()
	asked := 0
	l := must(t, hybridlimit.PerSecond(1), Config{LimitFor: func(key string) hybridlimit.Limit {
		if asked++; key == "banned" {
			return hybridlimit.Blocked()
		}
		return hybridlimit.PerSecond(1)
	}})
	for range 3 {
		if res, err := l.Allow(ctx, "banned"); err != nil || res.Allowed || res.RetryAfter != hybridlimit.Never {
			t.Error(res, err)
		}
	}
	if res, err := l.Allow(ctx, "other"); err != nil || !res.Allowed {
		t.Error(res, err)
	}
	if asked != 4 || l.Len() != 1 {
		t.Errorf("LimitFor was asked %d times, %d keys are held", asked, l.Len())
	}
}
