package hybrid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// TestAllowLimitWaitsUnderItsOwn checks that two calls under different limits, which wait
// for one answer, are each decided by their own limit. In an earlier version the larger
// cost was asked for under the smaller limit, and was denied for 285 years.
func TestAllowLimitWaitsUnderItsOwn(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		link := b.Link()
		l := newLimiter(t, link.Client(nil), still(5), patient(hybrid.Config{Mode: mode}))
		time.Sleep(2300 * time.Millisecond)
		link.Latency(20*time.Millisecond, 20*time.Millisecond)
		gold, plain := still(40), still(10)
		var wg sync.WaitGroup
		call := func(after time.Duration, n int64, limit hybridlimit.Limit, want bool) {
			wg.Go(func() {
				time.Sleep(after)
				res := must(t)(l.AllowLimit(t.Context(), "k", n, limit))
				if res.Allowed != want || res.RetryAfter > 100*time.Hour || res.Limit != limit.BurstSize() {
					t.Errorf("%d of %v: %+v", n, limit, res)
				}
			})
		}
		call(0, 1, gold, true)
		call(time.Millisecond, 30, gold, true) // both wait for the first
		call(2*time.Millisecond, 1, plain, true)
		call(200*time.Millisecond, 1, plain, true)
		call(201*time.Millisecond, 39, gold, false)
		call(202*time.Millisecond, 1, plain, true)
		wg.Wait()
		time.Sleep(time.Second)
		shutdown(t, l)
		balance(t, l.Stats())
	})
}

// TestRefusalsAreOfALimit checks that a denial by Redis under one limit does not hold under
// another limit. In an earlier version calls under the other limit were denied from memory
// for as long as the denial held.
func TestRefusalsAreOfALimit(t *testing.T) {
	for _, of := range []func(int64) hybridlimit.Limit{
		func(n int64) hybridlimit.Limit { return hybridlimit.LeakyQueue(n, time.Hour, n) },
		func(n int64) hybridlimit.Limit { return hybridlimit.SlidingLog(n, time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, redistest.NewBubble(t).Client(nil), of(2), hybrid.Config{})
			for _, want := range []bool{true, true, false, false} {
				if res := ask(t, l, "k", 1); res.Allowed != want {
					t.Errorf("%+v, want allowed %v", res, want)
				}
			}
			if res := must(t)(l.AllowLimit(t.Context(), "k", 1, of(3))); !res.Allowed {
				t.Errorf("under a larger limit: %+v", res)
			}
			if err := l.SetLimit(of(4)); err != nil {
				t.Fatal(err)
			}
			if res := ask(t, l, "k", 1); !res.Allowed {
				t.Errorf("after SetLimit: %+v", res)
			}
		})
	}
}
