package hybrid_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// hung returns a limiter whose Redis has just stopped answering, while the breaker is still
// closed.
func hung(t *testing.T, cfg hybrid.Config) (*hybrid.Limiter, *redistest.MemLink) {
	t.Helper()
	link := redistest.NewBubble(t).Link()
	l := newLimiter(t, link.Client(nil), still(100), cfg)
	time.Sleep(2100 * time.Millisecond)
	link.Pause()
	return l, link
}

// timed makes a call and returns how long it took, to the nanosecond.
func timed(t *testing.T, l *hybrid.Limiter, key string) (hybridlimit.Result, time.Duration) {
	t.Helper()
	start := time.Now()
	res := ask(t, l, key, 1)
	return res, time.Since(start)
}

func TestMaxWaitIsExact(t *testing.T) {
	for _, c := range []struct {
		mode    hybrid.Mode
		maxWait time.Duration
		want    time.Duration
		source  hybridlimit.Source
		allowed bool
	}{
		{hybrid.ModeAuto, 0, 20 * time.Millisecond, hybridlimit.SourceFallback, true},
		{hybrid.ModeAuto, 7 * time.Millisecond, 7 * time.Millisecond, hybridlimit.SourceFallback, true},
		{hybrid.ModeAuto, -1, 0, hybridlimit.SourceFallback, true},
		{hybrid.ModeDeferred, 30 * time.Millisecond, 30 * time.Millisecond, hybridlimit.SourceFallback, true},
		{hybrid.ModeStrict, 12345678, 12345678, hybridlimit.SourceTimeout, false},
		{hybrid.ModeStrict, -1, 0, hybridlimit.SourceTimeout, false},
		{hybrid.ModeExact, 25 * time.Millisecond, 25 * time.Millisecond, hybridlimit.SourceFallback, true},
	} {
		t.Run(c.mode.String()+" "+c.maxWait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := hung(t, hybrid.Config{Mode: c.mode, MaxWait: c.maxWait})
				res, took := timed(t, l, "k")
				if took != c.want || res.Source != c.source || res.Allowed != c.allowed {
					t.Errorf("with a hung Redis: %+v after %v, want %v after %v", res, took, c.source, c.want)
				}
				if !res.Allowed && (res.RetryAfter <= 0 || res.RetryAfter > time.Second) {
					t.Errorf("RetryAfter %v", res.RetryAfter)
				}
			})
		})
	}
}

// TestSecondCallerDoesNotWait checks that the next caller does not wait after Redis has been
// silent for MaxWait. A call for a key in another slot may wait.
func TestSecondCallerDoesNotWait(t *testing.T) {
	for mode, source := range map[hybrid.Mode]hybridlimit.Source{
		hybrid.ModeAuto: hybridlimit.SourceFallback, hybrid.ModeStrict: hybridlimit.SourceTimeout,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, link := hung(t, hybrid.Config{Mode: mode})
				if _, took := timed(t, l, "k"); took != 20*time.Millisecond {
					t.Fatalf("the first call took %v", took)
				}
				time.Sleep(time.Nanosecond) // Redis was silent for longer than MaxWait, not for exactly MaxWait
				for range 10 {
					if res, took := timed(t, l, "k"); took != 0 || res.Source != source {
						t.Errorf("the next call took %v: %+v", took, res)
					}
				}
				link.Resume()
				time.Sleep(time.Second)
				if res, took := timed(t, l, "k"); res.Source == source || took > 20*time.Millisecond {
					t.Errorf("with Redis back: %+v after %v", res, took)
				}
			})
		})
	}
}

func TestContextEndsTheWait(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link, rdb := b.Link(), b.Client(nil)
				l := newLimiter(t, link.Client(nil), still(100), hybrid.Config{Mode: mode, MaxWait: time.Second})
				link.Latency(50*time.Millisecond, 50*time.Millisecond)

				ctx, cancel := context.WithTimeout(t.Context(), 7*time.Millisecond)
				defer cancel()
				start := time.Now()
				res, err := l.AllowN(ctx, "k", 3)
				if !errors.Is(err, context.DeadlineExceeded) || res != (hybridlimit.Result{}) || time.Since(start) != 7*time.Millisecond {
					t.Errorf("a ctx of 7 ms: %+v, %v after %v", res, err, time.Since(start))
				}
				gone, cancel2 := context.WithCancel(t.Context())
				cancel2()
				if res, err := l.AllowN(gone, "k2", 3); !errors.Is(err, context.Canceled) || res != (hybridlimit.Result{}) {
					t.Errorf("a ctx that had ended: %+v, %v", res, err)
				}
				if s := l.Stats(); s.Admitted != 0 || s.Owed != 0 || s.Breaker != 0 {
					t.Errorf("calls that left were charged, or counted as failures of Redis: %+v", s)
				}

				// Redis grants the units that were asked for when the op was sent. The
				// next caller gets them, and unused units are counted.
				time.Sleep(5 * time.Second)
				shutdown(t, l)
				s := l.Stats()
				if got := balance(t, s); got != debited(t, rdb, "api", "k", "k2") || s.Admitted != 0 {
					t.Errorf("Redis debited %d: %+v", debited(t, rdb, "api", "k", "k2"), s)
				}
			})
		})
	}
}

// TestEndedContextTakesNothing checks that a call whose context has ended asks Redis for no
// unit. In an earlier version Redis granted the unit, and it was lost if the call noticed the
// end of its context first.
func TestEndedContextTakesNothing(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		l := newLimiter(t, b.Client(nil), still(10), patient(hybrid.Config{Mode: mode}))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, key := range keysOf("k", 40) {
			if res, err := l.Allow(ended, key); !errors.Is(err, context.Canceled) {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		time.Sleep(time.Second)
		if s := l.Stats(); s.Granted+s.Paid+s.Lost > 0 {
			t.Errorf("calls with an ended context took units: %+v", s)
		}
	})
}
