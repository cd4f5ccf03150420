package hybrid_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// learnt is the time after which Redis grants permits of a new tag.
const learnt = 5 * time.Second

// concurrency adds a limiter of calls in flight to a hub of its own.
func concurrency(t *testing.T, rdb redis.UniversalClient, limit hybridlimit.Limit, cfg hybrid.ConcurrencyConfig) *hybrid.ConcurrencyLimiter {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "calls"
	}
	l, err := newHub(t, rdb, hybrid.HubConfig{Prefix: "t"}).Concurrency(limit, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// acquire fails the test on an error.
func acquire(t *testing.T, l *hybrid.ConcurrencyLimiter, key string, n int64) (hybridlimit.Permit, hybridlimit.Result) {
	t.Helper()
	p, res, err := l.AcquireN(t.Context(), key, n)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// callFleet returns n processes that have learnt the fleet.
func callFleet(t *testing.T, b *redistest.Bubble, n int, limit hybridlimit.Limit, cfg hybrid.ConcurrencyConfig) []*hybrid.ConcurrencyLimiter {
	t.Helper()
	fleet := make([]*hybrid.ConcurrencyLimiter, n)
	for i := range fleet {
		fleet[i] = concurrency(t, b.Client(nil), limit, cfg)
	}
	acquireOnce(t, fleet[0])
	time.Sleep(learnt)
	return fleet
}

// acquireOnce makes Redis learn the tag of the key "k".
func acquireOnce(t *testing.T, l *hybrid.ConcurrencyLimiter) {
	p, _ := acquire(t, l, "k", 1)
	p.Release()
}

// TestFleetSharesPermits acquires all permits from three processes, and then one more.
func TestFleetSharesPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 3, hybridlimit.Concurrent(10), hybrid.ConcurrencyConfig{})
		var held []hybridlimit.Permit
		for i := range 30 {
			p, res := acquire(t, fleet[i%3], "k", 1)
			if res.Allowed {
				held = append(held, p)
			} else if res.RetryAfter != time.Second || res.Source != hybridlimit.SourceRedis {
				t.Errorf("a denial is %+v", res)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if len(held) != 10 {
			t.Errorf("%d calls of 10 permits run", len(held))
		}
		for _, p := range held {
			p.Release()
		}
		time.Sleep(5 * time.Second)
		for i, l := range fleet {
			if s := l.Stats(); s.Running != 0 || s.Held != 0 {
				t.Errorf("process %d has %d running, %d held", i, s.Running, s.Held)
			}
		}
		if p, res := acquire(t, fleet[1], "k", 10); !res.Allowed {
			t.Errorf("after all releases: %+v", res)
		} else {
			p.Release()
		}
	})
}

// TestKilledProcessFreesPermits kills the process that holds all permits.
func TestKilledProcessFreesPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		fleet := callFleet(t, b, 2, hybridlimit.Concurrent(5), hybrid.ConcurrencyConfig{MaxWait: time.Minute})
		p, res := acquire(t, fleet[0], "k", 5)
		if !res.Allowed {
			t.Fatalf("%+v", res)
		}
		defer p.Release()
		time.Sleep(10 * time.Second) // a call that is longer than any holding
		began := time.Now()
		fleet[0].Hub().Close() // its heartbeats end, and Redis is told nothing
		q, res := acquire(t, fleet[1], "k", 5)
		if took := time.Since(began); !res.Allowed || took < time.Second || took > 3*time.Second {
			t.Errorf("%+v after %v", res, took)
		}
		q.Release()
	})
}

// TestWaitingCalls checks the order of waiting calls, and their ends.
func TestWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := callFleet(t, redistest.NewBubble(t), 1, hybridlimit.Concurrent(1), hybrid.ConcurrencyConfig{MaxWait: 2 * time.Second})
		l := fleet[0]
		p, _ := acquire(t, l, "k", 1)
		order := make(chan int, 3)
		for i := range 2 {
			go func() {
				q, res := acquire(t, l, "k", 1)
				if res.Allowed {
					order <- i
					time.Sleep(100 * time.Millisecond)
					q.Release()
				}
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, _, err := l.Acquire(ctx, "k")
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled call got %v", err)
		}
		time.Sleep(500 * time.Millisecond)
		p.Release()
		if a, b := <-order, <-order; a != 0 || b != 1 {
			t.Errorf("call %d came before %d", a, b)
		}
		time.Sleep(time.Second)
		p, _ = acquire(t, l, "k", 1)
		began := time.Now()
		if _, res := acquire(t, l, "k", 1); res.Allowed || time.Since(began) != 2*time.Second {
			t.Errorf("%+v after %v", res, time.Since(began))
		}
		p.Release()
	})
}

// inFlight counts the permits of running calls.
type inFlight struct {
	mu                   sync.Mutex
	running, most, count int64
}

func (f *inFlight) begin(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running += n
	f.most = max(f.most, f.running)
	f.count++
}

func (f *inFlight) end(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running -= n
}

// counts returns the most permits that were in use at once, and the number of calls.
func (f *inFlight) counts() (most, calls int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most, f.count
}
