package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// answers is a LimitFor whose answer changes.
type answers struct {
	now   atomic.Pointer[hybridlimit.Limit]
	asked atomic.Int64
}

func answering(l hybridlimit.Limit) *answers {
	a := new(answers)
	a.set(l)
	return a
}

func (a *answers) set(l hybridlimit.Limit) { a.now.Store(&l) }

func (a *answers) limitFor(string) hybridlimit.Limit {
	a.asked.Add(1)
	return *a.now.Load()
}

func askNow(tb testing.TB, l *Limiter, n int64) hybridlimit.Result {
	tb.Helper()
	res, err := l.AllowN(context.Background(), "k", n)
	if err != nil {
		tb.Error(err)
	}
	return res
}

func invalidate(tb testing.TB, l *Limiter) {
	tb.Helper()
	if err := l.Invalidate("k"); err != nil {
		tb.Error(err)
	}
}

// TestLimitForIsAskedAgain checks the times of the questions about a key in use, and that the first call after any pause asks. In
// earlier versions an upgrade arrived with an eviction or a restart.
func TestLimitForIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, every := range []time.Duration{0, time.Second} {
			a := answering(still(1000))
			l := must(t, still(500), Config{LimitFor: a.limitFor, LimitRefresh: every})
			if every == 0 {
				every = time.Minute
			}
			gap, last := every/100, time.Now()
			askNow(t, l, 1)
			for range 1000 {
				before := a.asked.Load()
				time.Sleep(gap)
				askNow(t, l, 1)
				if a.asked.Load() == before {
					continue
				}
				if after := time.Since(last); after < every/2-5*ms || after > every+gap {
					t.Errorf("%v: asked again after %v", every, after)
				}
				last = time.Now()
			}
			if n := a.asked.Load(); n < 10 || n > 21 {
				t.Errorf("%v: LimitFor was asked %d times in ten times LimitRefresh", every, n)
			}
			a.set(still(2000))
			for range 101 {
				time.Sleep(gap)
				askNow(t, l, 1)
			}
			if res := askNow(t, l, 1); res.Limit != 2000 {
				t.Errorf("%v: the limit is %d, want 2000", every, res.Limit)
			}
			for _, idle := range []time.Duration{every, 16 * every, 32*every - every/512*2, 32 * every, 64 * every} {
				time.Sleep(idle)
				before := a.asked.Load()
				askNow(t, l, 1)
				if a.asked.Load() != before+1 {
					t.Errorf("%v: no question after %v without a call", every, idle)
				}
			}
			// Calls with limits of their own do not ask.
			for range 64 {
				time.Sleep(every / 2)
				before := a.asked.Load()
				if _, err := l.AllowLimit(t.Context(), "k", 1, still(77)); err != nil || a.asked.Load() != before {
					t.Errorf("%v: AllowLimit asks; %v", every, err)
				}
			}
			before := a.asked.Load()
			if askNow(t, l, 1); a.asked.Load() != before+1 {
				t.Errorf("%v: no question after calls with limits of their own", every)
			}
		}
	})
}

// TestInvalidate checks that the next call after Invalidate has the new limit, with each verb.
func TestInvalidate(t *testing.T) {
	ctx := context.Background()
	for name, verb := range map[string]func(*Limiter) (hybridlimit.Result, error){
		"AllowN":      func(l *Limiter) (hybridlimit.Result, error) { return l.AllowN(ctx, "k", 1) },
		"Peek":        func(l *Limiter) (hybridlimit.Result, error) { return l.Peek(ctx, "k") },
		"AllowAtMost": func(l *Limiter) (hybridlimit.Result, error) { return l.AllowAtMost(ctx, "k", 1) },
		"Charge":      func(l *Limiter) (hybridlimit.Result, error) { return l.Charge(ctx, "k", 1) },
		"Refund":      func(l *Limiter) (hybridlimit.Result, error) { return l.Refund(ctx, "k", 1) },
		"Wait":        func(l *Limiter) (hybridlimit.Result, error) { return l.Wait(ctx, "k", 1) },
		"AllowAll": func(l *Limiter) (hybridlimit.Result, error) {
			return hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: l, Key: "k", N: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := answering(still(100))
			l := must(t, still(500), Config{LimitFor: a.limitFor, LimitRefresh: hybridlimit.Never})
			askNow(t, l, 40)
			for _, limit := range []int64{1000, 60, 500, 100} {
				a.set(still(limit))
				if res, err := verb(l); err != nil || res.Limit == limit {
					t.Errorf("before Invalidate: %+v, %v", res, err)
				}
				invalidate(t, l)
				res, err := verb(l)
				if err != nil || res.Limit != limit || res.Remaining > 60+8 {
					t.Errorf("after Invalidate: %+v, %v, want the limit %d and no refill", res, err, limit)
				}
			}
			if n := a.asked.Load(); n != 5 {
				t.Errorf("LimitFor was asked %d times, want 5", n)
			}
		})
	}
	l := must(t, still(5), Config{})
	askNow(t, l, 1)
	invalidate(t, l)
	for key, want := range map[string]error{"": hybridlimit.ErrEmptyKey, strings.Repeat("x", 513): hybridlimit.ErrKeyTooLong, "unknown": nil} {
		if err := l.Invalidate(key); !errors.Is(err, want) {
			t.Errorf("Invalidate(%.10q): %v, want %v", key, err, want)
		}
	}
	_ = l.Close()
	if err := l.Invalidate("k"); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("Invalidate of a closed limiter: %v", err)
	}
	if err := l.InvalidateAll(); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("InvalidateAll of a closed limiter: %v", err)
	}
}

// TestInvalidateAll checks that the next call of each key has the new limit, and that a limit that stays refills nothing.
func TestInvalidateAll(t *testing.T) {
	a := answering(still(100))
	l := must(t, still(500), Config{LimitFor: a.limitFor, LimitRefresh: hybridlimit.Never})
	const keys = 300 // in several shards
	each := func(n, limit, left int64) {
		t.Helper()
		for i := range keys {
			if res, err := l.AllowN(t.Context(), fmt.Sprint(i), n); err != nil || res.Limit != limit || res.Remaining != left {
				t.Fatalf("key %d: %+v, %v, want %d of %d", i, res, err, left, limit)
			}
		}
	}
	all := func() {
		t.Helper()
		if err := l.InvalidateAll(); err != nil {
			t.Fatal(err)
		}
	}
	each(40, 100, 60)
	all()
	each(10, 100, 50)
	a.set(still(200))
	each(10, 100, 40)
	all()
	each(10, 200, 30)
	if n := a.asked.Load(); n != 3*keys {
		t.Errorf("LimitFor was asked %d times, want %d", n, 3*keys)
	}
}

// TestANewAnswerRefillsNothing checks that the old rate counts up to a change and the new rate from then on.
func TestANewAnswerRefillsNothing(t *testing.T) {
	slow, fast := hybridlimit.TokenBucket(1, time.Second, 1000), hybridlimit.TokenBucket(100, time.Second, 1000)
	for _, c := range []struct{ own, from, to hybridlimit.Limit }{{still(7), slow, fast}, {still(7), fast, slow}, {fast, slow, fast}, {slow, slow, fast}} {
		synctest.Test(t, func(t *testing.T) {
			a := answering(c.from)
			l := must(t, c.own, Config{LimitFor: a.limitFor})
			askNow(t, l, 1000)
			time.Sleep(5 * time.Second)
			a.set(c.to)
			invalidate(t, l)
			if res := askNow(t, l, 1); res.Remaining != 5*c.from.Rate-1 {
				t.Errorf("%v to %v: %d units after five seconds", c.from, c.to, res.Remaining)
			}
			time.Sleep(3 * time.Second)
			if res := askNow(t, l, 1); res.Remaining != 5*c.from.Rate+3*c.to.Rate-2 {
				t.Errorf("%v to %v: %d units three seconds after the change", c.from, c.to, res.Remaining)
			}
		})
	}
}

// TestRaisingAdmitsNoLess compares two limiters with equal calls, for each algorithm. The limit of one is raised in between.
func TestRaisingAdmitsNoLess(t *testing.T) {
	for _, limit := range everyAlgorithm(10, time.Second) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			a := answering(limit)
			raised := must(t, limit, Config{LimitFor: a.limitFor, LimitRefresh: hybridlimit.Never})
			same := must(t, limit, Config{})
			var more, less int64
			for i := range 3000 {
				time.Sleep(time.Duration(rng.Int64N(2e8)))
				if i%300 == 100 {
					limit.Rate += rng.Int64N(3)
					if limit.Burst > 0 {
						limit.Burst += rng.Int64N(5)
					}
					a.set(limit)
					invalidate(t, raised)
				}
				more, less = more+askNow(t, raised, 1).Granted, less+askNow(t, same, 1).Granted
				if more < less {
					t.Fatalf("%v: call %d: %d units under the raised limit, %d without", limit, i, more, less)
				}
			}
		})
	}
}

// TestBadAnswersKeepTheLimit checks answers that are not valid, and panics, for a key that is held.
func TestBadAnswersKeepTheLimit(t *testing.T) {
	a := answering(still(100))
	l := must(t, still(500), Config{LimitFor: func(key string) hybridlimit.Limit {
		if limit := a.limitFor(key); limit.Rate != 13 {
			return limit
		}
		panic("no database")
	}})
	askNow(t, l, 10)
	for i, bad := range []hybridlimit.Limit{{}, hybridlimit.FixedWindow(1, time.Second), hybridlimit.TokenBucket(-1, time.Second, 1)} {
		a.set(bad)
		invalidate(t, l)
		if res := askNow(t, l, 1); res.Limit != 100 || l.InvalidLimits() != uint64(i+1) {
			t.Errorf("after %v: %+v, %d invalid", bad, res, l.InvalidLimits())
		}
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "k", N: 1}); err != nil || res.Limit != 100 {
			t.Errorf("AllowAll after %v: %+v, %v", bad, res, err)
		}
	}
	a.set(hybridlimit.PerHour(13))
	invalidate(t, l)
	func() {
		defer func() {
			if r := recover(); r != "no database" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, _ = l.Allow(t.Context(), "k")
		t.Error("no panic")
	}()
	if res := askNow(t, l, 1); res.Limit != 100 || res.Remaining != 83 {
		t.Errorf("after the panic: %+v", res)
	}
}

// TestLimitForBlocks checks that a LimitFor that does not return holds up one call for the key, and that its answer does not
// replace a newer one.
func TestLimitForBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := answering(still(1000))
		gate, slow := make(chan struct{}), atomic.Bool{}
		l := must(t, still(500), Config{LimitFor: func(key string) hybridlimit.Limit {
			limit := a.limitFor(key)
			if slow.CompareAndSwap(true, false) {
				<-gate
			}
			return limit
		}})
		askNow(t, l, 1)
		slow.Store(true)
		a.set(still(2000))
		invalidate(t, l)
		var wg sync.WaitGroup
		wg.Go(func() { askNow(t, l, 1) })
		synctest.Wait()
		for range 100 {
			if res := askNow(t, l, 1); res.Limit != 1000 {
				t.Fatalf("another call: %+v", res)
			}
		}
		a.set(still(3000))
		invalidate(t, l)
		if res := askNow(t, l, 1); res.Limit != 3000 {
			t.Errorf("after another Invalidate: %+v", res)
		}
		close(gate)
		wg.Wait()
		if res := askNow(t, l, 1); res.Limit != 3000 {
			t.Errorf("after the late answer: %+v", res)
		}
		// A key that comes into memory with an answer from before an Invalidate.
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		gate = make(chan struct{})
		slow.Store(true)
		wg.Go(func() { askNow(t, l, 1) })
		synctest.Wait()
		a.set(still(4000))
		invalidate(t, l)
		close(gate)
		wg.Wait()
		if res := askNow(t, l, 1); res.Limit != 4000 {
			t.Errorf("after the old answer of a new key: %+v", res)
		}
	})
}

// TestAnswersThatCountNothing checks that a held key becomes blocked and unlimited, and that its used units stay used.
func TestAnswersThatCountNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := answering(still(100))
		l := must(t, still(500), Config{LimitFor: a.limitFor})
		askNow(t, l, 40)
		for range 2 {
			for _, limit := range []hybridlimit.Limit{hybridlimit.Blocked(), hybridlimit.Unlimited()} {
				a.set(limit)
				invalidate(t, l)
				asked := a.asked.Load()
				for range 100 {
					if res := askNow(t, l, 1000); res.Allowed != (limit == hybridlimit.Unlimited()) || res.Source != hybridlimit.SourceStatic {
						t.Fatalf("%v: %+v", limit, res)
					}
				}
				if n := a.asked.Load() - asked; n != 1 {
					t.Errorf("%v: asked %d times", limit, n)
				}
			}
			a.set(still(100))
			invalidate(t, l)
			if res := askNow(t, l, 1); res.Limit != 100 || res.Remaining > 59 || res.Remaining < 58 {
				t.Errorf("counted again: %+v", res)
			}
		}
	})
}
