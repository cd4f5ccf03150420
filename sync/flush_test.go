package ratesync_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

func TestFlushOfAnIdleEngine(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Flush(ended); err != nil {
			t.Errorf("Flush with nothing to do: %v", err)
		}
		w.wantAttempts(0)
	})
}

// Flush does not wait until nodes are due, and returns when all is answered.
func TestFlush(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		began := now()
		var items []*item
		for i := range 3 * lua.MaxOps {
			it := newItem(t, fmt.Sprint(i), 1)
			items = append(items, it)
			w.Enqueue(i%2, &it.node, began.Add(time.Hour+time.Duration(i)))
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		// 96 nodes in each of two lanes.
		if d := now().Sub(began); d != 2*rtt {
			t.Errorf("Flush took %v, want two round trips", d)
		}
		w.wantAttempts(4)
		for _, it := range items {
			if it.account() != [4]int64{0, 0, 1, 0} {
				t.Fatalf("%s: %v", it.name, it.account())
			}
		}
	})
}

// Regression: what Settle had queued again waited for its due time, so Flush
// took a sync interval longer for each round.
func TestFlushTakesWhatSettleRequeues(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		began := now()
		a := newItem(t, "a", 1)
		rounds := 0
		a.onSettle = func(ratesync.Answer) {
			if rounds++; rounds < 4 {
				a.owe(1)
				w.Enqueue(3, &a.node, now().Add(time.Minute))
			}
		}
		w.Enqueue(3, &a.node, began.Add(time.Minute))
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := now().Sub(began); d != 4*rtt || a.account() != [4]int64{0, 0, 4, 0} {
			t.Errorf("Flush took %v, then %v", d, a.account())
		}
		// It is over: lazy nodes wait again.
		a.owe(1)
		w.Enqueue(3, &a.node, now().Add(time.Minute))
		time.Sleep(time.Minute - 1)
		w.wantAttempts(4)
		time.Sleep(1)
		w.wantAttempts(5)
	})
}

// Regression: lanes were flushed one after the other, so one whose Redis was
// down kept the others from being flushed at all.
func TestFlushIsNotHeldUpByALane(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (lua.Reply, error) {
			if a.env.Key == "hl:v1:{0}:@env:p1" {
				return hangs(ctx)
			}
			return applied(ctx, a)
		}
		items := make([]*item, tags)
		for i := range items {
			items[i] = newItem(t, fmt.Sprint(i), 1)
			w.Enqueue(i, &items[i].node, now().Add(time.Hour))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := now()
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || now().Sub(began) != time.Second {
			t.Errorf("Flush: %v after %v", err, now().Sub(began))
		}
		for i, it := range items {
			if paid := it.account()[2]; (paid == 1) != (i != 0) {
				t.Errorf("lane %d: %v", i, it.account())
			}
		}
	})
}

func TestFlushWaitsForRetries(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = failing(5)
		a := newItem(t, "a", 1)
		w.Enqueue(0, &a.node, now())
		if err := w.Flush(t.Context()); err != nil || a.account() != [4]int64{0, 0, 1, 0} {
			t.Errorf("%v, %v", err, a.account())
		}
		w.wantAttempts(6)
	})
}

// Two at a time: the first to give up does not end the other's hurry.
func TestFlushesOverlap(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		began := now()
		a := newItem(t, "a", 1)
		rounds := 0
		a.onSettle = func(ratesync.Answer) {
			if rounds++; rounds < 10 {
				a.owe(1)
				w.Enqueue(0, &a.node, now().Add(time.Minute))
			}
		}
		w.Enqueue(0, &a.node, began.Add(time.Minute))
		short := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*rtt-1)
			defer cancel()
			short <- w.Flush(ctx)
		}()
		if err := w.Flush(t.Context()); err != nil || now().Sub(began) != 10*rtt {
			t.Errorf("the long Flush: %v after %v", err, now().Sub(began))
		}
		if err := <-short; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the short Flush: %v", err)
		}
	})
}

// Regression: Flush said that all was well when Close had dropped the rest.
func TestFlushWhileClosing(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (lua.Reply, error) { return hangs(ctx) }
		a := newItem(t, "a", 1)
		w.Enqueue(0, &a.node, now())
		flushed := make(chan error)
		go func() { flushed <- w.Flush(t.Context()) }()
		synctest.Wait()
		w.Close()
		if err := <-flushed; !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Flush while closing: %v", err)
		}
		if a.account() != [4]int64{0, 0, 0, 1} {
			t.Errorf("%v", a.account())
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Errorf("Flush of a closed engine: %v", err)
		}
	})
}

// A Flush that was cut short leaves the nodes queued.
func TestFlushGivesUp(t *testing.T) {
	inBubble(t, trips, func(t *testing.T, w *world) {
		w.breaker.Switch(breaker.ModeForceOpen)
		a := newItem(t, "a", 1)
		w.Enqueue(0, &a.node, now().Add(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		w.breaker.Switch(breaker.ModeAuto)
		time.Sleep(time.Second)
		if a.account() != [4]int64{0, 0, 1, 0} {
			t.Errorf("%v", a.account())
		}
	})
}
