package global_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// still returns a limit that refills no unit during a test.
func still(burst int64) hybridlimit.Limit { return hybridlimit.TokenBucket(1, time.Hour, burst) }

func TestVerbs(t *testing.T) {
	rdb := redistest.New(t).Client(t)
	vip := func(key string) hybridlimit.Limit {
		if key == "vip" {
			return still(50)
		}
		return still(10)
	}
	l, err := global.New(rdb, still(10), global.Config{Name: "api", LimitFor: vip, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx := t.Context()
	type verb func(key string, n int64) (hybridlimit.Result, error)
	peek := func(key string, _ int64) (hybridlimit.Result, error) { return l.Peek(ctx, key) }
	allow := func(key string, n int64) (hybridlimit.Result, error) { return l.AllowN(ctx, key, n) }
	atMost := func(key string, n int64) (hybridlimit.Result, error) { return l.AllowAtMost(ctx, key, n) }
	charge := func(key string, n int64) (hybridlimit.Result, error) { return l.Charge(ctx, key, n) }
	under := func(limit hybridlimit.Limit) verb {
		return func(key string, n int64) (hybridlimit.Result, error) { return l.AllowLimit(ctx, key, n, limit) }
	}
	for i, step := range []struct {
		do                verb
		key               string
		n                 int64
		allowed           bool
		granted, left, of int64
	}{
		{peek, "k", 1, true, 0, 10, 10},
		{atMost, "k", 4, true, 4, 6, 10},
		{peek, "k", 1, true, 0, 6, 10},
		{atMost, "k", 400, true, 6, 0, 10},
		{atMost, "k", 1, false, 0, 0, 10},
		{peek, "k", 1, false, 0, 0, 10},
		{allow, "vip", 40, true, 40, 10, 50}, // LimitFor
		{charge, "vip", 9, true, 9, 1, 50},
		{charge, "vip", 90, true, 90, 0, 50}, // down to a burst of debt
		{peek, "vip", 1, false, 0, 0, 50},
		{under(still(20)), "plan", 15, true, 15, 5, 20},
		{under(still(20)), "plan", 6, false, 0, 5, 20},
		{under(still(3)), "plan", 3, true, 3, 0, 3}, // 5 units are left, capped at the new burst of 3
		{under(still(20)), "plan", 1, false, 0, 0, 20},
		{under(still(20)), "plan", 21, false, 0, 0, 20},
	} {
		res, err := step.do(step.key, step.n)
		if err != nil || res.Allowed != step.allowed || res.Granted != step.granted || res.Remaining != step.left || res.Limit != step.of ||
			(res.RetryAfter > 0) == res.Allowed || res.Policy != "api" {
			t.Errorf("step %d: %+v, %v", i, res, err)
		}
	}

	if err := l.SetLimit(still(2)); err != nil {
		t.Fatal(err)
	}
	if err := l.SetLimit(hybridlimit.Limit{}); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Error(err)
	}
	if err := l.SetLimit(hybridlimit.SlidingLog(1, time.Second)); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Error(err)
	}
	if _, err := under(hybridlimit.Limit{})("k", 1); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Error(err)
	}
	l.Close()
	for i, do := range []verb{peek, allow, atMost, charge, under(still(1))} {
		if _, err := do("k", 1); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("verb %d after Close: %v", i, err)
		}
	}
	if err := l.SetLimit(still(2)); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Error(err)
	}
}

// TestSetLimit checks that SetLimit takes effect at once and refills nothing.
func TestSetLimit(t *testing.T) {
	l, err := global.New(redistest.New(t).Client(t), still(10), global.Config{Name: "api", Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, step := range []struct{ set, take, left int64 }{{0, 4, 6}, {20, 6, 0}, {5, 0, 0}, {40, 0, 0}} {
		if step.set > 0 {
			if err := l.SetLimit(still(step.set)); err != nil {
				t.Fatal(err)
			}
		}
		if step.take > 0 {
			if res, err := l.AllowN(t.Context(), "k", step.take); err != nil || !res.Allowed {
				t.Errorf("%+v: %+v, %v", step, res, err)
			}
		}
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != step.left || step.set > 0 && res.Limit != step.set {
			t.Errorf("%+v: %+v, %v", step, res, err)
		}
	}
}

func TestVerbsWithoutRedis(t *testing.T) {
	for _, open := range []bool{false, true} {
		srv := redistest.New(t)
		l, err := global.New(srv.Client(t), still(10), global.Config{Name: "api", FailOpen: open, Timeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		srv.Kill()
		if res, err := l.Peek(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) || res.Allowed != open || res.Granted != 0 {
			t.Errorf("peek: %+v, %v", res, err)
		}
		if res, err := l.AllowAtMost(t.Context(), "k", 3); !errors.Is(err, hybridlimit.ErrUnavailable) || res.Allowed != open || (res.Granted == 3) != open {
			t.Errorf("at most: %+v, %v", res, err)
		}
		if _, err := l.Charge(t.Context(), "k", 3); !errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("charge: %v", err)
		}
	}
}

// TestVerbsBeyondAllBounds checks that AllowAtMost and Charge accept the largest costs.
func TestVerbsBeyondAllBounds(t *testing.T) {
	l, err := global.New(redistest.New(t).Client(t), still(10), global.Config{Name: "api", Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, n := range []int64{1 << 53, 1<<53 + 1, math.MaxInt64} {
		if res, err := l.AllowAtMost(t.Context(), fmt.Sprint(n), n); err != nil || res.Granted != 10 {
			t.Errorf("AllowAtMost(%d): %+v, %v", n, res, err)
		}
		if res, err := l.Charge(t.Context(), fmt.Sprint(n), n); err != nil || res.Granted != n || res.Remaining != 0 {
			t.Errorf("Charge(%d): %+v, %v", n, res, err)
		}
	}
}
