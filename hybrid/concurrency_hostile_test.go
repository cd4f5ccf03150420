package hybrid_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
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
