package hybrid_test

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
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestBucketIsItsKey checks that a handle of a key and its limiter share the key's
// units: together they admit no more than the limit.
func TestBucketIsItsKey(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), still(100), hybrid.Config{Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		h, rng := l.Handle("k"), rand.New(rand.NewPCG(1, 2))
		var admitted int64
		for range 200 {
			n := 1 + rng.Int64N(2)
			call := h.AllowN
			if rng.IntN(2) == 0 {
				call = func(ctx context.Context, n int64) (hybridlimit.Result, error) { return l.AllowN(ctx, "k", n) }
			}
			res := must(t)(call(t.Context(), n))
			if res.Limit != 100 || res.Policy != "api" || res.Granted != 0 && res.Granted != n || res.Allowed == (res.RetryAfter > 0) {
				t.Fatalf("%+v", res)
			}
			admitted += res.Granted
			time.Sleep(7 * time.Millisecond)
		}
		shutdown(t, l)
		if s := l.Stats(); admitted < 95 || admitted > 100 || s.Decisions() != 200 || s.Admitted != admitted {
			t.Errorf("%d units admitted of 100; %+v", admitted, s)
		}
	})
}

// TestBucketAfterAnEviction checks that a handle stays valid after its key was
// evicted. The next call loads the state of the key from Redis.
func TestBucketAfterAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(5), hybrid.Config{MaxKeys: 2})
		h := l.Handle("k")
		for i := range 10 {
			if res := must(t)(h.Allow(t.Context())); res.Allowed != (i < 5) {
				t.Errorf("call %d: %+v", i, res)
			}
			time.Sleep(200 * time.Millisecond)
			for j := range 4 {
				ask(t, l, fmt.Sprint("other", j), 1)
				time.Sleep(200 * time.Millisecond)
			}
		}
		if s := l.Stats(); s.Evicted < 10 {
			t.Errorf("%d evictions", s.Evicted)
		}
	})
}

// TestBucketRefuses checks that the calls of a handle report an invalid key, an
// invalid cost and a closed limiter.
func TestBucketRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(5), hybrid.Config{})
		for key, want := range map[string]error{"": hybridlimit.ErrEmptyKey, strings.Repeat("k", 513): hybridlimit.ErrKeyTooLong} {
			if res, err := l.Handle(key).Allow(t.Context()); !errors.Is(err, want) || res.Allowed {
				t.Errorf("%.5q: %+v, %v", key, res, err)
			}
		}
		h := l.Handle("k")
		for range 2 { // without an entry, and with one
			if _, err := h.AllowN(t.Context(), 0); !errors.Is(err, hybridlimit.ErrCost) {
				t.Error(err)
			}
			if res := must(t)(h.AllowN(t.Context(), 6)); res.Allowed || res.RetryAfter != hybridlimit.Never {
				t.Errorf("%+v", res)
			}
			must(t)(h.Allow(t.Context()))
		}
		shutdown(t, l)
		if _, err := h.Allow(t.Context()); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}
