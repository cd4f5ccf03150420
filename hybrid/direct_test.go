package hybrid_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestARefusalEndsWithTheEntry checks that memory denies a key of a log no longer than Redis would: a call that is sent
// when the units come back arrives when they are there.
func TestARefusalEndsWithTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := redistest.NewBubble(t).Link()
		link.Latency(10*time.Millisecond, 10*time.Millisecond)
		l := newLimiter(t, link.Client(nil), hybridlimit.SlidingLog(1, 10*time.Second), hybrid.Config{MaxWait: time.Second})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "warm", 1) // the connection is open
		began := time.Now()
		ask(t, l, "k", 1)
		time.Sleep(time.Until(began.Add(8 * time.Second)))
		if res := ask(t, l, "k", 1); res.Allowed {
			t.Fatalf("%+v", res)
		}
		time.Sleep(time.Until(began.Add(9990 * time.Millisecond)))
		if res := ask(t, l, "k", 1); res.Source != hybridlimit.SourceDenyCache {
			t.Errorf("before the units are back: %+v", res)
		}
		time.Sleep(time.Until(began.Add(10*time.Second + time.Millisecond)))
		if res := ask(t, l, "k", 1); !res.Allowed {
			t.Errorf("the units are back: %+v", res)
		}
	})
}

// TestCallersThatLeaveOpenNoBreaker checks that direct calls whose context ends in the round trip are no evidence against
// Redis.
func TestCallersThatLeaveOpenNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := redistest.NewBubble(t).Link()
		l := newLimiter(t, link.Client(nil), still(100), hybrid.Config{Mode: hybrid.ModeExact, MaxWait: time.Second})
		time.Sleep(2300 * time.Millisecond)
		link.Latency(5*time.Millisecond, 5*time.Millisecond)
		for range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), 7*time.Millisecond)
			if _, err := l.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call that left: %v", err)
			}
			cancel()
		}
		if s := l.Stats(); s.Breaker != breaker.Closed {
			t.Errorf("the breaker is %v", s.Breaker)
		}
		if res := ask(t, l, "k", 1); res.Source != hybridlimit.SourceRedis {
			t.Errorf("%+v", res)
		}
	})
}
