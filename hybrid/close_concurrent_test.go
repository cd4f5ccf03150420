package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func TestCloseEndsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := redistest.NewBubble(t).Link()
		link.Pause()
		l := newLimiter(t, link.Client(nil), hybridlimit.PerSecond(100), hybrid.Config{MaxWait: time.Hour})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				res, err := l.Allow(context.Background(), fmt.Sprint("k", i%3))
				if !errors.Is(err, hybridlimit.ErrClosed) || res.Allowed {
					t.Errorf("a call that waited when the limiter closed: %+v, %v", res, err)
				}
			})
		}
		synctest.Wait() // all of them wait for Redis
		start := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		// go-redis is told to give up after SyncTimeout; it may try three times to connect.
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %v with a Redis that hangs", took)
		}
		if err := l.Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
	})
}

func TestCallsThatRaceWithCloseEnd(t *testing.T) {
	srv := redistest.New(t)
	for i := range 20 {
		key := fmt.Sprint("k", i)
		l := newLimiter(t, srv.Client(t), still(1_000_000), hybrid.Config{Overshoot: 1})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					if _, err := l.Allow(context.Background(), key); err != nil {
						if !errors.Is(err, hybridlimit.ErrClosed) {
							t.Errorf("a call beside Close: %v", err)
						}
						return
					}
				}
			})
		}
		redistest.Eventually(t, 10*time.Second, "calls are decided", func() bool { return l.Stats().Admitted > 100 })
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		balance(t, l.Stats())
	}
}

// TestShutdownAndWaitingCalls checks calls that wait when Shutdown begins. A call that
// was sent to Redis gets its answer. A call that was not sent yet is refused and not
// charged.
func TestShutdownAndWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link, rdb := b.Link(), b.Client(nil)
		l := newLimiter(t, link.Client(nil), still(100), hybrid.Config{
			MaxWait: time.Second, Mode: hybrid.ModeStrict, Hub: hybrid.HubConfig{Tags: 1},
		})
		time.Sleep(100 * time.Millisecond)
		link.Script(everySync(1, redistest.DelayReply(50*time.Millisecond)))
		var wg sync.WaitGroup
		call := func(key string, want error) {
			wg.Go(func() {
				if res, err := l.Allow(t.Context(), key); !errors.Is(err, want) || res.Allowed != (want == nil) {
					t.Errorf("%s: %+v, %v; want %v", key, res, err, want)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		call("asked", nil)
		call("queued", hybridlimit.ErrClosed)
		shutdown(t, l)
		wg.Wait()
		s := l.Stats()
		if keys, err := rdb.Keys(t.Context(), "*queued").Result(); len(keys) > 0 || err != nil {
			t.Errorf("the call that was refused left %q, %v", keys, err)
		}
		if got := balance(t, s); got != 1 || s.Admitted != 1 {
			t.Errorf("one call was admitted: %+v", s)
		}
	})
}
