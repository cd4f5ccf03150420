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
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

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

// TestNeverAbove runs random calls in a fleet, and counts those in flight.
func TestNeverAbove(t *testing.T) {
	t.Parallel()
	starts := int64(400)
	if testenv.Full() {
		starts = 3000
	}
	synctest.Test(t, func(t *testing.T) {
		const limit = 7
		fleet := callFleet(t, redistest.NewBubble(t), 4, hybridlimit.Concurrent(limit), hybrid.ConcurrencyConfig{MaxWait: 50 * time.Millisecond})
		var calls inFlight
		rng := rand.New(rand.NewPCG(1, 2))
		for range starts {
			time.Sleep(time.Duration(rng.ExpFloat64() * 5e6))
			l, n, lasts := fleet[rng.IntN(4)], 1+rng.Int64N(2), time.Duration(rng.ExpFloat64()*3e7)
			go func() {
				p, res, err := l.AcquireN(t.Context(), "k", n)
				if err != nil {
					t.Error(err)
				}
				if !res.Allowed {
					return
				}
				calls.begin(n)
				time.Sleep(lasts)
				calls.end(n)
				p.Release()
			}()
		}
		time.Sleep(time.Second)
		if most, count := calls.counts(); most != limit || count < starts/2 {
			t.Errorf("%d permits in use at most, %d calls", most, count)
		}
	})
}

// TestCancelledCalls cancels thousands of waiting calls, and then finds all permits.
func TestCancelledCalls(t *testing.T) {
	waiting := 3000
	if testenv.Full() {
		waiting = 10_000
	}
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 2, hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{MaxWait: time.Hour})
		held := hold(t, fleet[0], 3)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range waiting {
			all.Go(func() {
				if _, _, err := fleet[i%2].Acquire(ctx, "k"); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		releaseAll(held)
		time.Sleep(3 * time.Second)
		for _, l := range fleet {
			p, res := acquire(t, l, "k", 3)
			if s := l.Stats(); !res.Allowed || s.Waiting != 0 || s.Running != 3 {
				t.Errorf("%+v, %+v", res, s)
			}
			p.Release()
			time.Sleep(2 * time.Second)
		}
	})
}

// TestCloseWhileCallsRun closes a limiter with running and waiting calls.
func TestCloseWhileCallsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 2, hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{MaxWait: time.Hour})
		l, h := fleet[0], fleet[0].Hub()
		held := hold(t, l, 3)
		waits := make(chan error, 1)
		go func() {
			_, _, err := l.Acquire(context.Background(), "k")
			waits <- err
		}()
		synctest.Wait()
		l.Close()
		if err := <-waits; !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("a waiting call got %v", err)
		}
		if _, _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("a later call got %v", err)
		}
		time.Sleep(20 * time.Second) // the hub tells the running calls
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, _, err := fleet[1].Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside running calls of a closed limiter: %v", err)
		}
		cancel()
		if _, err := h.Concurrency(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{Name: "calls"}); err == nil {
			t.Error("the name of a closed limiter is free while its calls run")
		}
		releaseAll(held)
		time.Sleep(time.Second)
		if p, res := acquire(t, fleet[1], "k", 3); !res.Allowed {
			t.Errorf("%+v", res)
		} else {
			p.Release()
		}
		again, err := h.Concurrency(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{Name: "calls"})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := acquire(t, again, "k", 1)
		h.Close()
		p.Release()
		p.Release()
		if got := again.Running("k"); got != 0 {
			t.Errorf("%d run after the release", got)
		}
	})
}
