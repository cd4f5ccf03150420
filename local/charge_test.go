package local

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func TestAllowAtMost(t *testing.T) {
	eachAlgorithm(t, 10, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		l, now := at(t, limit, Config{Name: "p"})
		for i, want := range []struct{ n, granted int64 }{{3, 3}, {3, 3}, {9, 4}, {1, 0}, {100, 0}} {
			res, err := l.atMostAt(now, "k", want.n, "")
			if err != nil || res.Granted != want.granted || res.Allowed != (want.granted > 0) || res.Policy != "p" {
				t.Errorf("step %d, %d: %+v, %v", i, want.n, res, err)
			}
			if res.Allowed != (res.RetryAfter == 0) || res.Source != hybridlimit.SourceLocal || res.Limit != 10 {
				t.Errorf("step %d, %d: %+v", i, want.n, res)
			}
		}
		res, err := l.atMostAt(now, "fresh", 1<<62, "")
		if err != nil || res.Granted != 10 {
			t.Errorf("AllowAtMost far above the burst: %+v, %v", res, err)
		}
	})
}

func TestChargeEndsAtOneBurstOfDebt(t *testing.T) {
	for _, tc := range []struct {
		limit   hybridlimit.Limit
		one     time.Duration // after a charge of 14 of 10: until one unit is there
		full    time.Duration // after a charge of 14 of 10: until the key is full
		oneMore time.Duration // at the largest debt: until one unit is there
	}{
		{hybridlimit.TokenBucket(10, time.Second, 0), 500 * ms, 1400 * ms, 1100 * ms},
		{hybridlimit.LeakyBucket(10, time.Second, 0), 500 * ms, 1400 * ms, 1100 * ms},
		{hybridlimit.LeakyQueue(10, time.Second, 0), 500 * ms, 1400 * ms, 1100 * ms},
		{hybridlimit.FixedWindow(10, time.Second), 1000 * ms, 2000 * ms, 2000 * ms},
		// 14·(1−f) ≤ 9, and 20·(1−f) ≤ 9.
		{hybridlimit.SlidingWindow(10, time.Second), 1357142858, 2000 * ms, 1550 * ms},
		{hybridlimit.SlidingLog(10, time.Second), 1000 * ms, 1000 * ms, 1000 * ms},
	} {
		t.Run(tc.limit.Algorithm.String(), func(t *testing.T) {
			l, now := at(t, tc.limit, Config{})
			charge := func(n int64) hybridlimit.Result {
				t.Helper()
				if _, err := l.chargeAt(now, "k", n, ""); err != nil {
					t.Fatal(err)
				}
				return mustPeek(t, l, now)
			}
			if res := charge(4); !res.Allowed || res.Remaining != 6 {
				t.Errorf("4 of 10: %+v", res)
			}
			if res := charge(10); res.Allowed || res.Remaining != 0 || res.RetryAfter != tc.one || res.ResetAfter != tc.full {
				t.Errorf("14 of 10: %+v, want %v and %v", res, tc.one, tc.full)
			}
			for _, n := range []int64{7, 1, 1 << 62} {
				if res := charge(n); res.RetryAfter != tc.oneMore {
					t.Errorf("%d more: %+v, want %v", n, res, tc.oneMore)
				}
			}
			res := mustPeek(t, l, now)
			if early := mustPeek(t, l, now.Add(res.RetryAfter-1)); early.Allowed {
				t.Errorf("a nanosecond early: %+v", early)
			}
			if again := ask(t, l, now.Add(res.RetryAfter), "k", 1); !again.Allowed {
				t.Errorf("in time: %+v", again)
			}
		})
	}
}

// TestFixedWindowCarriesDebt checks that the next window begins with the debt, and that
// the window after it does not.
func TestFixedWindowCarriesDebt(t *testing.T) {
	for _, tc := range []struct {
		later     time.Duration
		remaining int64
	}{{0, 0}, {999 * ms, 0}, {1000 * ms, 7}, {1999 * ms, 7}, {2000 * ms, 10}, {5000 * ms, 10}} {
		l, now := at(t, hybridlimit.FixedWindow(10, time.Second), Config{})
		if _, err := l.chargeAt(now, "k", 13, ""); err != nil {
			t.Fatal(err)
		}
		if got := mustPeek(t, l, now.Add(tc.later)).Remaining; got != tc.remaining {
			t.Errorf("%v later: %d remain, want %d", tc.later, got, tc.remaining)
		}
	}
}

func TestRefundNeverAboveFull(t *testing.T) {
	eachAlgorithm(t, 10, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		l, now := at(t, limit, Config{})
		refund := func(n int64) hybridlimit.Result {
			t.Helper()
			if _, err := l.refundAt(now, "k", n); err != nil {
				t.Fatal(err)
			}
			return mustPeek(t, l, now)
		}
		if refund(3); l.Len() != 0 {
			t.Error("a refund of nothing made a key")
		}
		ask(t, l, now, "k", 4)
		ask(t, l, now, "k", 4)
		if res := refund(3); res.Remaining != 5 {
			t.Errorf("3 of 8 given back: %+v", res)
		}
		fresh := mustPeek(t, func() *Limiter { l, _ := at(t, limit, Config{}); return l }(), now)
		for _, n := range []int64{5, 1, 1 << 62} {
			if res := refund(n); res != fresh {
				t.Errorf("all and %d given back: %+v", n, res)
			}
		}
		// Debt is paid first.
		if _, err := l.chargeAt(now, "k", 18, ""); err != nil {
			t.Fatal(err)
		}
		if res := refund(9); res.Remaining != 1 {
			t.Errorf("9 of 18 given back: %+v", res)
		}
		if res := refund(1 << 62); res != fresh {
			t.Errorf("everything given back: %+v", res)
		}
	})
}

// TestVerbsCheckTheirInput checks that each invalid input gives its error and changes
// nothing.
func TestVerbsCheckTheirInput(t *testing.T) {
	ctx := context.Background()
	eachAlgorithm(t, 10, time.Second, func(t *testing.T, limit hybridlimit.Limit) {
		l, _ := at(t, limit, Config{})
		verbs := map[string]func(key string, n int64) error{
			"AllowAtMost": func(key string, n int64) error { _, err := l.AllowAtMost(ctx, key, n); return err },
			"AllowLimit":  func(key string, n int64) error { _, err := l.AllowLimit(ctx, key, n, limit); return err },
			"PeekN":       func(key string, n int64) error { _, err := l.PeekN(ctx, key, n); return err },
			"Reserve":     func(key string, n int64) error { _, err := l.Reserve(ctx, key, n); return err },
			"Wait":        func(key string, n int64) error { _, err := l.Wait(ctx, key, n); return err },
			"Charge":      func(key string, n int64) error { _, err := l.Charge(ctx, key, n); return err },
			"Refund":      func(key string, n int64) error { _, err := l.Refund(ctx, key, n); return err },
		}
		for name, verb := range verbs {
			for _, bad := range []struct {
				key  string
				n    int64
				want error
			}{{"", 1, hybridlimit.ErrEmptyKey}, {"k", 0, hybridlimit.ErrCost}, {"k", -1, hybridlimit.ErrCost}} {
				if err := verb(bad.key, bad.n); !errors.Is(err, bad.want) {
					t.Errorf("%s(%q, %d): %v", name, bad.key, bad.n, err)
				}
			}
		}
		if l.Len() != 0 {
			t.Errorf("bad input made %d keys", l.Len())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		verbs["SetLimit"] = func(string, int64) error { return l.SetLimit(limit) }
		for name, verb := range verbs {
			if err := verb("k", 1); !errors.Is(err, hybridlimit.ErrClosed) {
				t.Errorf("%s when closed: %v", name, err)
			}
		}
	})
}
