package hybrid_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestOwnLimitOfKeyIsLifted lets LimitFor return another limit for a key for which a call waits. The next call makes it known, and the
// one that waits ends by it. Regression: it waited for the old limit.
func TestOwnLimitOfKeyIsLifted(t *testing.T) {
	for _, later := range []hybridlimit.Limit{hybridlimit.Unlimited(), hybridlimit.Concurrent(1)} {
		synctest.Test(t, func(t *testing.T) {
			var limit atomic.Pointer[hybridlimit.Limit]
			first := hybridlimit.Concurrent(2)
			limit.Store(&first)
			l := callFleet(t, redistest.NewBubble(t), 1, hybridlimit.Concurrent(9), hybrid.ConcurrencyConfig{
				MaxWait: 20 * time.Second, LimitFor: func(string) hybridlimit.Limit { return *limit.Load() },
			})[0]
			held := hold(t, l, 2)
			waited := make(chan hybridlimit.Result)
			go func() {
				p, res := acquire(t, l, "k", 2)
				p.Release()
				waited <- res
			}()
			synctest.Wait()
			limit.Store(&later)
			began := time.Now()
			p, _ := acquire(t, l, "k", 2)
			free := later == hybridlimit.Unlimited()
			if res := <-waited; res.Allowed != free || time.Since(began) > time.Second {
				t.Errorf("%v: the call that waits gets %+v after %v", later, res, time.Since(began))
			}
			p.Release()
			releaseAll(held)
		})
	}
}

// TestResetDuringAReset resets a key while the message of another Reset is in flight. Redis may have applied that message already.
// Regression: its answer ended the later Reset too.
func TestResetDuringAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		rdb := link.Client(nil)
		l := concurrency(t, rdb, hybridlimit.Concurrent(4), hybrid.ConcurrencyConfig{})
		acquireOnce(t, l)
		time.Sleep(learnt)
		link.Latency(10*time.Millisecond, 10*time.Millisecond)
		openConnections(t, rdb, 4) // or a Reset beside a heartbeat would wait for the handshake of a new connection
		began := time.Now()
		ended := make(chan time.Duration, 2)
		for _, wait := range []time.Duration{0, 15 * time.Millisecond} {
			time.AfterFunc(wait, func() {
				if err := l.Reset(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				ended <- time.Since(began)
			})
		}
		first, second := <-ended, <-ended
		if first > 25*time.Millisecond || second < 35*time.Millisecond || second > 50*time.Millisecond {
			t.Errorf("one Reset ended after %v, one begun after 15 ms ended after %v; a message takes 20 ms", first, second)
		}
	})
}

// openConnections opens as many connections that are at hand afterwards. The link has a latency.
func openConnections(t *testing.T, rdb *redis.Client, n int) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := rdb.Ping(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := rdb.PoolStats().IdleConns; int(got) < n-1 { // a heartbeat may use one
		t.Fatalf("%d connections are idle, want %d", got, n)
	}
}

// TestShutdownWithoutOneNode shuts a limiter down while the part of Redis that has the permits of its key is away, and while the one
// that has the heartbeats is there. Regression: it waited for the permits until the end of ctx.
func TestShutdownWithoutOneNode(t *testing.T) {
	for _, prefix := range []string{"t", "u"} {
		names := lua.Names{Prefix: prefix, Tags: 2}
		t.Logf("the heartbeats have the tag %d", names.FleetTag())
		synctest.Test(t, func(t *testing.T) {
			link := redistest.NewBubble(t).Link()
			ring := redis.NewRing(&redis.RingOptions{ // a hub has one breaker for each tag of a ring
				Addrs: map[string]string{"one": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour,
				NewClient: func(*redis.Options) *redis.Client { return link.Client(nil) },
			})
			defer ring.Close()
			h := newHub(t, ring, hybrid.HubConfig{Prefix: names.Prefix, Tags: names.Tags})
			l, err := h.Concurrency(hybridlimit.Concurrent(9), hybrid.ConcurrencyConfig{Name: "calls"})
			if err != nil {
				t.Fatal(err)
			}
			key := "a"
			for names.Tag(key) == names.FleetTag() {
				key += "a"
			}
			acquireKey(t, l, key).Release()
			time.Sleep(learnt)
			p := acquireKey(t, l, key)
			link.Script(func(_ int, cmd []string) redistest.Verdict {
				if len(cmd) > 1 && cmd[1] == lua.Permits.SHA {
					return redistest.DropRequest(redistest.ThenClose)
				}
				return redistest.Forward()
			})
			p.Release()
			time.Sleep(20 * time.Second)
			if st := l.Stats(); st.Held == 0 || !st.Member {
				t.Fatalf("permits are held by a member no more: %+v", st)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			if err := l.Shutdown(ctx); err != nil || time.Since(began) > time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	}
}

func acquireKey(t *testing.T, l *hybrid.ConcurrencyLimiter, key string) hybridlimit.Permit {
	t.Helper()
	p, res := acquire(t, l, key, 1)
	if !res.Allowed {
		t.Fatalf("%s: %+v", key, res)
	}
	return p
}
