package hybrid_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

// TestStaticLimitWhileCallsRun changes to a limit without state and back, while calls run and wait. Regression: Redis refused each
// message about a key with the limit Unlimited. The call that waited was denied after MaxWait, and messages were sent without an end.
func TestStaticLimitWhileCallsRun(t *testing.T) {
	for _, static := range []hybridlimit.Limit{hybridlimit.Unlimited(), hybridlimit.Blocked()} {
		synctest.Test(t, func(t *testing.T) {
			l := callFleet(t, redistest.NewBubble(t), 1, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{MaxWait: 2 * time.Second})[0]
			held := hold(t, l, 4)
			waited := make(chan hybridlimit.Result)
			go func() {
				p, res := acquire(t, l, "k", 1)
				p.Release()
				waited <- res
			}()
			synctest.Wait()
			began := time.Now()
			if err := l.SetLimit(static); err != nil {
				t.Fatal(err)
			}
			free := static == hybridlimit.Unlimited()
			if res := <-waited; res.Allowed != free || time.Since(began) > time.Second {
				t.Errorf("%v: the call that waits gets %+v after %v", static, res, time.Since(began))
			}
			before := l.Hub().Stats().Messages
			time.Sleep(10 * time.Second)
			if n := l.Hub().Stats().Messages - before; n > 20 {
				t.Errorf("%v: %d messages in 10 s", static, n)
			}
			if err := l.SetLimit(hybridlimit.Concurrent(5)); err != nil {
				t.Fatal(err)
			}
			if more := runAll(t, l); len(more) != 1 {
				t.Errorf("%v: %d calls beside 4 of 5", static, len(more))
			}
			releaseAll(held)
		})
	}
}

// TestCallsInARace lets everything happen at once: calls, copies of permits, changes of the limit, Reset, switches, and the end. Calls
// in flight come back to zero, no permit is released twice, and nothing is left.
func TestCallsInARace(t *testing.T) {
	seed := testenv.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		var own sync.Map
		fleet := callFleet(t, redistest.NewBubble(t), 2, hybridlimit.Concurrent(5), hybrid.ConcurrencyConfig{
			MaxWait: time.Second, MaxKeys: 3, LimitFor: func(key string) hybridlimit.Limit {
				if n, ok := own.Load(key); ok {
					return n.(hybridlimit.Limit)
				}
				return hybridlimit.Concurrent(5)
			},
		})
		limits := []hybridlimit.Limit{hybridlimit.Concurrent(1), hybridlimit.Concurrent(8), hybridlimit.Unlimited(), hybridlimit.Blocked()}
		var all sync.WaitGroup
		pairs, pace := 10, 100
		if testenv.Full() {
			pairs, pace = 40, 20
		}
		end := time.Now().Add(4 * time.Second)
		for i := range pairs {
			l := fleet[i%2]
			nap := func(rnd *rand.Rand) { time.Sleep(time.Duration(rnd.IntN(pace)) * time.Millisecond) }
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(2*i)))
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(300))*time.Millisecond)
					p, _, err := l.AcquireN(ctx, string(rune('a'+rnd.IntN(4))), 1+rnd.Int64N(3))
					for _, of := range []error{nil, hybridlimit.ErrClosed, hybridlimit.ErrTooManyKeys, context.DeadlineExceeded} {
						if errors.Is(err, of) {
							err = nil
						}
					}
					if err != nil {
						t.Error(err)
					}
					nap(rnd)
					copied := p
					go copied.Release()
					p.Release()
					cancel()
				}
			})
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(2*i+1)))
				for time.Now().Before(end) {
					nap(rnd)
					limit := limits[rnd.IntN(len(limits))]
					var err error
					switch i % 5 {
					case 0:
						err = l.SetLimit(limit)
					case 1:
						err = l.Reset(t.Context(), "a")
					case 2:
						err = l.SetSwitch(hybrid.Switch(rnd.IntN(5)))
					case 3:
						l.ClearSwitch()
						err = l.ClearLimit()
					case 4:
						own.Store("b", limit)
					}
					if err != nil && !errors.Is(err, hybridlimit.ErrClosed) && !errors.Is(err, hybridlimit.ErrTooManyKeys) && !errors.Is(err, hybridlimit.ErrUnavailable) {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(3 * time.Second)
		if err := fleet[0].Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := fleet[1].Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		for i, l := range fleet {
			if s := l.Stats(); s.Running != 0 || s.Held != 0 || s.Waiting != 0 || s.Keys != 0 {
				t.Errorf("process %d: %+v", i, s)
			}
			if _, _, err := l.Acquire(t.Context(), "a"); !errors.Is(err, hybridlimit.ErrClosed) {
				t.Errorf("process %d after Close: %v", i, err)
			}
		}
	})
}

// TestOrderBesideCancelledCalls cancels each second one of the calls that wait. The others are served in their order.
func TestOrderBesideCancelledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := callFleet(t, redistest.NewBubble(t), 1, hybridlimit.Concurrent(1), hybrid.ConcurrencyConfig{MaxWait: time.Hour})[0]
		held := hold(t, l, 1)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan int, 300)
		for i := range 300 {
			of := t.Context()
			if i%2 == 1 {
				of = ctx
			}
			go func() {
				p, _, err := l.Acquire(of, "k")
				if (err != nil) != (i%2 == 1) {
					t.Errorf("call %d: %v", i, err)
				}
				if err == nil {
					served <- i
				}
				p.Release()
			}()
			synctest.Wait()
		}
		cancel()
		releaseAll(held)
		last := -2
		for range 150 {
			i := <-served
			if i != max(0, last+2) {
				t.Errorf("call %d is served after call %d", i, last)
			}
			last = i
		}
	})
}

// TestLimitOfOneWhileCallsWait sets the limit to one and then to more while calls wait.
func TestLimitOfOneWhileCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := callFleet(t, redistest.NewBubble(t), 1, hybridlimit.Concurrent(2), hybrid.ConcurrencyConfig{MaxWait: time.Minute})[0]
		held := hold(t, l, 2)
		results := make(chan hybridlimit.Result, 6)
		for range 6 {
			go func() {
				_, res := acquire(t, l, "k", 1)
				results <- res
			}()
		}
		synctest.Wait()
		for _, n := range []int64{1, 6} {
			if err := l.SetLimit(hybridlimit.Concurrent(n)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if got := l.Running("k"); got != max(2, n) {
				t.Errorf("with a limit of %d, %d calls run", n, got)
			}
		}
		releaseAll(held)
		time.Sleep(time.Second)
		if got := l.Running("k"); got != 6 || len(results) != 6 {
			t.Errorf("%d calls run, and %d were served", got, len(results))
		}
	})
}

// TestMembersEvicted evicts the heartbeats of the fleet, and writes keys of another type in their place, while calls run.
func TestMembersEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		fleet := callFleet(t, b, 2, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{})
		held := hold(t, fleet[0], 3)
		for _, spoil := range []func(key string){
			func(key string) { b.Mini.Del(key) },
			func(key string) { b.Mini.Del(key); _ = b.Mini.Set(key, "x") },
			func(key string) { b.Mini.Del(key); b.Mini.HSet(key, "a", "nan") },
			func(key string) { b.Mini.Del(key); _, _ = b.Mini.Push(key, "a") },
		} {
			found := 0
			for _, key := range b.Mini.Keys() {
				if strings.HasSuffix(key, "@members") {
					spoil(key)
					found++
				}
			}
			if found != 1 {
				t.Fatalf("%d keys of members", found)
			}
			time.Sleep(5 * time.Second)
			if s := fleet[1].Stats(); !s.Member {
				t.Errorf("%+v", s)
			}
			more := runAll(t, fleet[1])
			if len(more) != 1 {
				t.Errorf("%d calls beside 3 of 4", len(more))
			}
			releaseAll(more)
			time.Sleep(time.Second)
		}
		releaseAll(held)
	})
}

// TestReleaseAfterTheEnd releases permits after Close, after the ctx of Shutdown has ended, and after the hub is closed.
func TestReleaseAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := callFleet(t, redistest.NewBubble(t), 1, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{})[0]
		held := hold(t, l, 3)
		_ = l.Close()
		held[0].Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 permits") {
			t.Errorf("%v", err)
		}
		held[1].Release()
		if err := l.Hub().Close(); err != nil {
			t.Error(err)
		}
		var all sync.WaitGroup
		for range 64 {
			for _, p := range held {
				all.Go(p.Release)
			}
		}
		all.Wait()
		if n := l.Running("k"); n != 0 {
			t.Errorf("%d calls run", n)
		}
		for _, n := range []int64{0, -1, math.MinInt64} {
			if _, _, err := l.AcquireN(t.Context(), "k", n); !errors.Is(err, hybridlimit.ErrCost) && !errors.Is(err, hybridlimit.ErrClosed) {
				t.Errorf("%d permits: %v", n, err)
			}
		}
	})
}
