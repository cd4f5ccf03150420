package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func still(burst int64) hybridlimit.Limit { return hybridlimit.TokenBucket(1, time.Hour, burst) }

// left returns the units that a limiter has left of a key.
func left(tb testing.TB, l *Limiter, key string) int64 {
	tb.Helper()
	res, err := l.Peek(context.Background(), key)
	if err != nil {
		tb.Fatal(err)
	}
	return res.Remaining
}

// TestAllowAllOrNothing checks that a denial by one limit takes nothing from the
// others. The answer is that of the narrowest limit.
func TestAllowAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, addr, all := must(t, still(5), Config{Name: "user"}), must(t, still(8), Config{Name: "addr"}), must(t, still(100), Config{Name: "all"})
		call := func(u string, n int64) hybridlimit.Result {
			t.Helper()
			res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: all, Key: "*", N: n}, hybridlimit.Ask{Limiter: user, Key: u, N: n}, hybridlimit.Ask{Limiter: addr, Key: "::1", N: n})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		for i := range int64(5) {
			if res := call("ann", 1); !res.Allowed || res.Policy != "user" || res.Remaining != 4-i || res.Limit != 5 || res.Granted != 1 || res.Source != hybridlimit.SourceLocal {
				t.Errorf("call %d: %+v", i, res)
			}
		}
		for range 10 {
			if res := call("ann", 1); res.Allowed || res.Policy != "user" || res.RetryAfter != time.Hour || res.Granted != 0 {
				t.Errorf("the sixth of ann: %+v", res)
			}
		}
		if res := call("bob", 4); res.Allowed || res.Policy != "addr" {
			t.Errorf("four of bob: %+v", res)
		}
		if res := call("bob", 6); res.Allowed || res.Policy != "user" || res.RetryAfter != hybridlimit.Never || res.Source != hybridlimit.SourceStatic {
			t.Errorf("six of five: %+v", res)
		}
		if res := call("bob", 3); !res.Allowed || res.Policy != "addr" || res.Remaining != 0 {
			t.Errorf("three of bob: %+v", res)
		}
		if a, b, c, d := left(t, user, "ann"), left(t, user, "bob"), left(t, addr, "::1"), left(t, all, "*"); a != 0 || b != 2 || c != 0 || d != 92 {
			t.Errorf("left %d %d %d %d", a, b, c, d)
		}
	})
}

// TestAllowAllOfOneIsAllowN checks that a call under one limit gives the answer of
// AllowN, and that two asks for one key count as their sum, after any history.
func TestAllowAllOfOneIsAllowN(t *testing.T) {
	eachAlgorithm(t, 5, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		one, now := at(t, limit, Config{})
		all, _ := at(t, limit, Config{})
		rng := rand.New(rand.NewPCG(1, 2))
		denied := 0
		for i := range 2000 {
			now = now.Add(time.Duration(rng.Int64N(int64(400 * time.Millisecond))))
			n := 1 + rng.Int64N(6)/(1+rng.Int64N(3))
			want := ask(t, one, now, "k", n)
			all := all.when(now)
			asks := []hybridlimit.Ask{{Limiter: all, Key: "k", N: n}}
			if n > 1 && rng.IntN(2) == 0 {
				asks = []hybridlimit.Ask{{Limiter: all, Key: "k", N: 1}, {Limiter: all, Key: "k", N: n - 1}}
			}
			got, err := all.AllowJoint(t.Context(), asks)
			if err != nil || got != want {
				t.Fatalf("call %d of %d units: %+v, %v, want %+v", i, n, got, err, want)
			}
			if !got.Allowed {
				denied++
			}
		}
		if denied == 0 || denied == 2000 {
			t.Errorf("%d denied", denied)
		}
	})
}

func TestAllowAllRefuses(t *testing.T) {
	user := must(t, still(5), Config{Name: "user"})
	other := must(t, still(5), Config{Name: "other"})
	for name, tc := range map[string]struct {
		asks []hybridlimit.Ask
		want error
		says string
	}{
		"nothing":       {nil, hybridlimit.ErrInvalid, "asks is empty, but needs at least one ask"},
		"nobody":        {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 1}, {Key: "k", N: 1}}, hybridlimit.ErrInvalid, "asks[1].Limiter (<nil>) must not be nil"},
		"no cost":       {[]hybridlimit.Ask{{Limiter: user, Key: "j", N: 1}, {Limiter: user, Key: "k", N: 0}}, hybridlimit.ErrCost, "asks[1]"},
		"no key":        {[]hybridlimit.Ask{{Limiter: user, Key: "", N: 1}}, hybridlimit.ErrEmptyKey, "asks[0]"},
		"cost overflow": {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 1 << 62}, {Limiter: user, Key: "k", N: 1 << 62}}, hybridlimit.ErrCost, "asks[1]"},
	} {
		res, err := hybridlimit.AllowAll(t.Context(), tc.asks...)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || res != (hybridlimit.Result{}) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "k", N: 3}, hybridlimit.Ask{Limiter: user, Key: "k", N: 3}); err != nil || res.Allowed || res.RetryAfter != hybridlimit.Never {
		t.Errorf("3 and 3 of one key of 5: %+v, %v", res, err)
	}
	other.Close()
	if _, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "k", N: 1}, hybridlimit.Ask{Limiter: other, Key: "k", N: 1}); !errors.Is(err, hybridlimit.ErrClosed) || left(t, user, "k") != 5 {
		t.Errorf("%v, %d left", err, left(t, user, "k"))
	}
	if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "k", N: 5}); err != nil || !res.Allowed { // the failed call has released its locks
		t.Errorf("%+v, %v", res, err)
	}
}

func TestAllowAllStatic(t *testing.T) {
	user, open, shut := must(t, still(5), Config{Name: "user"}), must(t, hybridlimit.Unlimited(), Config{Name: "open"}), must(t, hybridlimit.Blocked(), Config{Name: "shut"})
	ask := func(ls ...*Limiter) hybridlimit.Result {
		t.Helper()
		var asks []hybridlimit.Ask
		for _, l := range ls {
			asks = append(asks, hybridlimit.Ask{Limiter: l, Key: "k", N: 2})
		}
		res, err := hybridlimit.AllowAll(t.Context(), asks...)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := ask(open); !res.Allowed || res.Policy != "open" || res.Granted != 2 || res.Source != hybridlimit.SourceStatic {
		t.Errorf("unlimited: %+v", res)
	}
	if res := ask(user, shut, open); res.Allowed || res.Policy != "shut" || res.RetryAfter != hybridlimit.Never || left(t, user, "k") != 5 {
		t.Errorf("blocked: %+v", res)
	}
	if res := ask(open, user); !res.Allowed || res.Policy != "user" || res.Remaining != 3 {
		t.Errorf("beside unlimited: %+v", res)
	}
}

// TestAllowAllDelay checks that the result has the longest delay, or the longest wait
// of a denial.
func TestAllowAllDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := must(t, hybridlimit.LeakyQueue(1, time.Second, 9), Config{Name: "slow"})
		fast := must(t, hybridlimit.LeakyQueue(10, time.Second, 3), Config{Name: "fast"})
		for i := range 4 {
			res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: slow, Key: "k", N: 1}, hybridlimit.Ask{Limiter: fast, Key: "k", N: 1})
			if want := time.Duration(i) * time.Second; i < 3 && (err != nil || !res.Allowed || res.Delay != want || res.Policy != "fast") {
				t.Errorf("call %d: %+v, %v, want a delay of %v", i, res, err, want)
			}
			if i == 3 && (err != nil || res.Allowed || res.Policy != "fast" || res.RetryAfter != 100*time.Millisecond || res.Delay != 0) {
				t.Errorf("call %d: %+v, %v", i, res, err)
			}
		}
	})
}

// TestAllowAllLimitFor checks that LimitFor is called without a lock, and only for keys
// that are not held. A key that is pushed out by another key of the same call keeps its
// limit.
func TestAllowAllLimitFor(t *testing.T) {
	asked := map[string]int{}
	var l *Limiter
	l = must(t, still(5), Config{Name: "l", MaxKeys: 1, LimitFor: func(key string) hybridlimit.Limit {
		asked[key]++
		l.Len() // takes every lock
		return map[string]hybridlimit.Limit{"vip": still(50), "bad": {}, "open": hybridlimit.Unlimited()}[key]
	}})
	for i := range 3 {
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "vip", N: 10}, hybridlimit.Ask{Limiter: l, Key: "open", N: 1}); err != nil || !res.Allowed || res.Limit != 50 || res.Remaining != int64(40-10*i) {
			t.Errorf("call %d: %+v, %v", i, res, err)
		}
	}
	if asked["vip"] != 1 || asked["open"] != 3 {
		t.Errorf("asked %v", asked)
	}
	if _, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "vip", N: 10}, hybridlimit.Ask{Limiter: l, Key: "bad", N: 1}); !errors.Is(err, hybridlimit.ErrInvalid) || left(t, l, "vip") != 20 {
		t.Errorf("%v, %d left", err, left(t, l, "vip"))
	}
	two := must(t, still(5), Config{MaxKeys: 1, LimitFor: func(string) hybridlimit.Limit { return still(7) }})
	for i := range 3 {
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: two, Key: fmt.Sprint("a", i), N: 6}, hybridlimit.Ask{Limiter: two, Key: fmt.Sprint("b", i), N: 6}); err != nil || !res.Allowed || res.Limit != 7 {
			t.Errorf("keys that push each other out: %+v, %v", res, err)
		}
	}
	if two.Evicted() < 3 {
		t.Errorf("%d evicted", two.Evicted())
	}
}
