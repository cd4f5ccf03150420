package hybrid_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestInvalidAnswerKeepsTheLimit checks that a key in memory keeps its limit if the new answer is not valid, that this is counted
// and logged without the key, and that LimitFor is asked again.
func TestInvalidAnswerKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newCapture()
		limits := newTable(still(100))
		l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(500), hybrid.Config{
			LimitFor: limits.limitFor, MaxWait: time.Second, Hub: hybrid.HubConfig{Logger: slog.New(log)},
		})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "secret", 10)
		var want int64
		for _, bad := range []hybridlimit.Limit{{}, hybridlimit.FixedWindow(1, time.Second), hybridlimit.TokenBucket(-1, time.Second, 1)} {
			limits.set("secret", bad)
			invalidate(t, l, "secret")
			want++
			for range 5 {
				if res := ask(t, l, "secret", 1); res.Limit != 100 {
					t.Errorf("after %v: %+v", bad, res)
				}
			}
			if s := l.Stats(); s.InvalidLimits != want {
				t.Errorf("%d invalid limits are counted, want %d", s.InvalidLimits, want)
			}
			time.Sleep(2 * time.Second)
		}
		if got := log.all(); len(got) != int(want) {
			t.Errorf("logged %q, want %d lines", got, want)
		}
		for _, line := range log.all() {
			if !strings.HasPrefix(line, "WARN hybridlimit: Config.LimitFor returned a limit that is not valid for a key in memory") ||
				!strings.Contains(line, "limiter=api") || !strings.Contains(line, "key_digest=") || !strings.Contains(line, "cause=") {
				t.Errorf("logged %q", line)
			}
		}
		if _, err := l.Allow(t.Context(), "secret2"); err != nil {
			t.Error(err)
		}
		limits.set("new", hybridlimit.Limit{})
		if _, err := l.Allow(t.Context(), "new"); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("an invalid limit of a new key: %v", err)
		}
		limits.set("secret", still(200))
		time.Sleep(time.Minute)
		if res := ask(t, l, "secret", 1); res.Limit != 200 || res.Remaining > 200-16 {
			t.Errorf("a valid answer at last: %+v", res)
		}
	})
}

// TestLimitForPanics checks that a panic reaches the caller, and that the key keeps its limit and is not locked.
func TestLimitForPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		l := newLimiter(t, redistest.NewBubble(t).Client(nil), still(500), hybrid.Config{MaxWait: time.Second, LimitFor: func(string) hybridlimit.Limit {
			if broken.Load() {
				panic("no database")
			}
			return still(100)
		}})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "k", 10)
		broken.Store(true)
		invalidate(t, l, "k")
		func() {
			defer func() {
				if r := recover(); r != "no database" {
					t.Errorf("recovered %v", r)
				}
			}()
			l.Allow(context.Background(), "k")
			t.Error("no panic")
		}()
		if res := ask(t, l, "k", 1); res.Limit != 100 || res.Remaining != 89 {
			t.Errorf("after the panic: %+v", res)
		}
		broken.Store(false)
		shutdown(t, l)
		balance(t, l.Stats())
	})
}

// TestLimitForBlocks checks that a LimitFor that does not return holds up one call for the key, and no other.
func TestLimitForBlocks(t *testing.T) {
	inModes(t, inMemory, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		limits := newTable(still(1000))
		gate, slow := make(chan struct{}), atomic.Bool{}
		l := newLimiter(t, b.Client(nil), still(500), hybrid.Config{Mode: mode, MaxWait: time.Second, LimitFor: func(key string) hybridlimit.Limit {
			if slow.Load() {
				<-gate
			}
			return limits.limitFor(key)
		}})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "k", 1)
		slow.Store(true)
		limits.set("k", still(2000))
		invalidate(t, l, "k")
		var wg sync.WaitGroup
		wg.Go(func() {
			if res := ask(t, l, "k", 1); res.Limit != 2000 {
				t.Errorf("the call that asked: %+v", res)
			}
		})
		synctest.Wait()
		for range 100 {
			began := time.Now()
			if res := ask(t, l, "k", 1); res.Limit != 1000 || time.Since(began) > time.Second {
				t.Fatalf("another call, after %v: %+v", time.Since(began), res)
			}
		}
		close(gate)
		wg.Wait()
		if res := ask(t, l, "k", 1); res.Limit != 2000 {
			t.Errorf("the next call: %+v", res)
		}
	})
}

// TestAStandingLimitHoldsWhileItIsAsked checks that a key that LimitFor made Blocked or Unlimited stays so for other calls
// while one call asks again.
func TestAStandingLimitHoldsWhileItIsAsked(t *testing.T) {
	inModes(t, inMemory, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		for _, standing := range []hybridlimit.Limit{hybridlimit.Blocked(), hybridlimit.Unlimited()} {
			limits := newTable(still(1000))
			gate, slow := make(chan struct{}), atomic.Bool{}
			l := newLimiter(t, b.Client(nil), still(500), hybrid.Config{
				Name: standing.Algorithm.String(), Mode: mode, MaxWait: time.Second, LimitRefresh: time.Minute, LimitFor: func(key string) hybridlimit.Limit {
					if slow.Load() {
						<-gate
					}
					return limits.limitFor(key)
				},
			})
			time.Sleep(2300 * time.Millisecond)
			ask(t, l, "k", 1) // the key has an account, and its plan
			limits.set("k", standing)
			invalidate(t, l, "k")
			ask(t, l, "k", 1)
			time.Sleep(90 * time.Second)
			slow.Store(true)
			var wg sync.WaitGroup
			wg.Go(func() { ask(t, l, "k", 1) })
			synctest.Wait()
			for range 10 {
				if res := ask(t, l, "k", 1); res.Source != hybridlimit.SourceStatic || res.Allowed != (standing == hybridlimit.Unlimited()) {
					t.Errorf("%v: another call: %+v", standing, res)
				}
			}
			close(gate)
			wg.Wait()
		}
	})
}

// TestACallWaitsUnderTheOldLimit checks that a call that waits for Redis since before a new answer is decided by its limit, and
// that the key has the new one afterwards, whether Redis answers or not.
func TestACallWaitsUnderTheOldLimit(t *testing.T) {
	for _, latency := range []time.Duration{20 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			limits := newTable(still(100))
			link := redistest.NewBubble(t).Link()
			l := newLimiter(t, link.Client(nil), still(500), hybrid.Config{
				Mode: hybrid.ModeStrict, LimitFor: limits.limitFor, LimitRefresh: hybridlimit.Never, MaxWait: time.Second,
			})
			time.Sleep(2300 * time.Millisecond)
			ask(t, l, "k", 1)
			link.Latency(latency, latency)
			var wg sync.WaitGroup
			for i := range 2 { // the first is on its way, the second waits behind it
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					if res := ask(t, l, "k", 40); res.Limit != 100 {
						t.Errorf("call %d: %+v", i, res)
					}
				})
			}
			time.Sleep(5 * time.Millisecond)
			limits.set("k", still(200))
			invalidate(t, l, "k")
			if res := ask(t, l, "k", 1e6); res.Limit != 200 {
				t.Errorf("a call that does not wait: %+v", res)
			}
			wg.Wait()
			if res := ask(t, l, "k", 1); res.Limit != 200 {
				t.Errorf("the next call: %+v", res)
			}
		})
	}
}

// TestAKeyGoesBackToTheLimit checks that a key whose LimitFor gives it back the limiter's limit follows SetLimit again, at once.
func TestAKeyGoesBackToTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own atomic.Bool
		var l *hybrid.Limiter
		own.Store(true)
		limitFor := func(string) hybridlimit.Limit {
			if own.Load() {
				return still(50)
			}
			return l.Limit()
		}
		l = newLimiter(t, redistest.NewBubble(t).Client(nil), still(500), hybrid.Config{LimitFor: limitFor, MaxWait: time.Second})
		time.Sleep(2300 * time.Millisecond)
		ask(t, l, "k", 1)
		own.Store(false)
		invalidate(t, l, "k")
		for _, limit := range []int64{500, 700, 300} {
			if err := l.SetLimit(still(limit)); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if res := ask(t, l, "k", 1); res.Limit != limit {
					t.Errorf("%+v, want the limit %d", res, limit)
				}
			}
		}
	})
}
