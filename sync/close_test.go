package ratesync_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// lanesRunning counts the goroutines of lanes. A bubble panics if a goroutine outlives it,
// so this count is only needed before the end of a bubble.
func lanesRunning() int {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "(*lane).run(")
}

func TestIdleLanesHaveNoGoroutine(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		check := func(when string, want int) {
			t.Helper()
			if n := lanesRunning(); n != want {
				t.Errorf("%s: %d lanes run, want %d", when, n, want)
			}
		}
		check("new", 0)
		a, b := newItem(t, "a", 1), newItem(t, "b", 1)
		w.Enqueue(0, a, now().Add(time.Second))
		w.Enqueue(1, b, now().Add(2*time.Second))
		check("queued", 2)
		time.Sleep(time.Second + rtt)
		check("one answered", 1)
		time.Sleep(time.Second + rtt)
		check("both answered", 0)
		a.owe(1)
		w.Enqueue(0, a, now())
		check("again", 1)
		time.Sleep(rtt)
		check("answered", 0)
	})
}

// Close drops frozen ops and does not touch queued items. Every goroutine has ended when
// Close returns.
func TestClose(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script func(context.Context, attempt) (wire.Reply, error)
		after  time.Duration
	}{
		{"in flight", func(ctx context.Context, _ attempt) (wire.Reply, error) { return hangs(ctx) }, 0},
		{"between attempts", func(context.Context, attempt) (wire.Reply, error) { return wire.Reply{}, errLost }, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, calm, func(t *testing.T, w *world) {
				w.redis.script = tc.script
				frozen, queued, lazy := newItem(t, "frozen", 1), newItem(t, "queued", 2), newItem(t, "lazy", 3)
				w.Enqueue(0, frozen, now())
				synctest.Wait()
				w.Enqueue(0, queued, now())
				w.Enqueue(1, lazy, now().Add(time.Hour))
				time.Sleep(tc.after)
				began := now()
				w.Close()
				if n := lanesRunning(); n != 0 || now() != began {
					t.Errorf("%d lanes run after Close, Close took %v; want 0 and 0s", n, now().Sub(began))
				}
				w.Close()
				for it, want := range map[*item][4]int64{frozen: {0, 0, 0, 1}, queued: {2, 0, 0, 0}, lazy: {3, 0, 0, 0}} {
					if it.account() != want {
						t.Errorf("%s: %v, want %v", it.name, it.account(), want)
					}
				}
				if w.breaker.State() != 0 {
					t.Errorf("Close tripped the breaker: %v", w.breaker.State())
				}
			})
		})
	}
}

// Close does not count as a failure of Redis. The breaker of this test opens at the first
// failure.
func TestCloseDoesNotTrip(t *testing.T) {
	cfg := trips
	cfg.Failures = 1
	inBubble(t, cfg, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, _ attempt) (wire.Reply, error) { return hangs(ctx) }
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		synctest.Wait()
		w.Close()
		if w.breaker.State() != 0 {
			t.Errorf("the breaker is %v", w.breaker.State())
		}
	})
}

// An answer that arrives during Close is settled.
func TestAnswerWhileClosing(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			<-ctx.Done()
			return replyTo(a), nil
		}
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		synctest.Wait()
		w.Close()
		if a.account() != [4]int64{0, 0, 1, 0} {
			t.Errorf("%v", a.account())
		}
	})
}

func TestEnqueueAfterClose(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.Close()
		a := newItem(t, "a", 1)
		for range 3 {
			w.Enqueue(0, a, now())
		}
		time.Sleep(time.Second)
		w.wantAttempts(0)
		if n := lanesRunning(); n != 0 || a.account() != [4]int64{1, 0, 0, 0} {
			t.Errorf("%d lanes run, %v", n, a.account())
		}
	})
}
