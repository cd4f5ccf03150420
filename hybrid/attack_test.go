package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestCallbacksRunUnderNoLock checks that LimitFor and TagBy may call their
// own limiter, also for the same key.
func TestCallbacksRunUnderNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var l *hybrid.Limiter
		var inside, calls atomic.Int64
		reenter := func(key string) {
			if l == nil || !inside.CompareAndSwap(0, 1) {
				return
			}
			calls.Add(1)
			l.Stats()
			for _, k := range []string{key, "other"} {
				must(t)(l.AllowN(t.Context(), k, 1))
				must(t)(l.Charge(t.Context(), k, 1))
				must(t)(l.AllowLimit(t.Context(), k, 1, still(77)))
				must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: k, N: 1}))
			}
			inside.Store(0)
		}
		made := newLimiter(t, b.Client(nil), still(1000), hybrid.Config{
			LimitFor: func(key string) hybridlimit.Limit { reenter(key); return still(1000) },
			TagBy:    func(key string) string { reenter(key); return key },
		})
		l = made
		time.Sleep(2300 * time.Millisecond)
		ctx := t.Context()
		for i := range 20 {
			key := fmt.Sprint("k", i%3)
			must(t)(l.AllowN(ctx, key, 1))
			must(t)(l.AllowLimit(ctx, key, 1, still(500)))
			must(t)(l.AllowAtMost(ctx, key, 2))
			must(t)(l.Peek(ctx, key))
			must(t)(l.Charge(ctx, key, 1))
			must(t)(hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: l, Key: key, N: 1}, hybridlimit.Ask{Limiter: l, Key: "other", N: 1}))
			if err := l.SetLimit(still(int64(900 + i))); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if calls.Load() < 20 {
			t.Errorf("the callbacks called the limiter %d times, want at least 20", calls.Load())
		}
	})
}

// TestAllowAllContextEnds checks a ctx that ends while AllowAll waits. AllowAll
// returns the error of ctx. It has taken only units that Redis granted
// meanwhile: these count as lost, or other calls use them.
func TestAllowAllContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb := b.Client(nil)
		link := b.Link()
		h := newHub(t, link.Client(nil), hybrid.HubConfig{})
		var ls []*hybrid.Limiter
		for _, name := range []string{"a", "b", "c"} {
			ls = append(ls, add(t, h, still(10), hybrid.Config{Name: name, Mode: hybrid.ModeStrict, MaxWait: time.Second}))
		}
		time.Sleep(2300 * time.Millisecond)
		link.Latency(25*time.Millisecond, 25*time.Millisecond) // the three cold keys are asked for in one message
		for wait := 10 * time.Millisecond; wait < 150*time.Millisecond; wait += 30 * time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			key := fmt.Sprint("k", wait)
			began := time.Now()
			res, err := hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: ls[0], Key: key, N: 2}, hybridlimit.Ask{Limiter: ls[1], Key: key, N: 2}, hybridlimit.Ask{Limiter: ls[2], Key: key, N: 2})
			cancel()
			if ended := wait < 50*time.Millisecond; ended != errors.Is(err, context.DeadlineExceeded) || ended == res.Allowed || time.Since(began) > wait {
				t.Errorf("%v: %+v, %v after %v", wait, res, err, time.Since(began))
			}
			time.Sleep(2 * time.Second)
		}
		shutdown(t, ls...)
		for i, l := range ls {
			s := l.Stats()
			var keys []string
			for wait := 10 * time.Millisecond; wait < 150*time.Millisecond; wait += 30 * time.Millisecond {
				keys = append(keys, fmt.Sprint("k", wait))
			}
			if got := debited(t, rdb, []string{"a", "b", "c"}[i], keys...); s.Admitted != 6 || got != balance(t, s) {
				t.Errorf("limit %d: %d debited; %+v", i, got, s)
			}
		}
	})
}
