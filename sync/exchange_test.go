package ratesync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// A caller whose lane is free runs the exchange: its item is settled when Exchange returns.
func TestExchangeSettles(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		a, late := newItem(t, "a", 1), newItem(t, "late", 1)
		began := now()
		w.Enqueue(0, late, began.Add(time.Second))
		synctest.Wait() // the goroutine of the lane sleeps until then
		for i := range 3 {
			a.owe(int64(i))
			w.Exchange(t.Context(), 0, a, time.Second)
			if got := now().Sub(began); got != time.Duration(i+1)*rtt {
				t.Errorf("exchange %d has returned after %v", i, got)
			}
		}
		if got := a.account(); got != [4]int64{0, 0, 4, 0} {
			t.Errorf("pending, in flight, paid, lost: %v", got)
		}
		if got := late.account(); got[0] != 1 {
			t.Errorf("an item that is due later was sent: %v", got)
		}
		time.Sleep(time.Second)
		if got := late.lastAnswer().Received.Sub(began); got != time.Second+rtt {
			t.Errorf("an item that was due after a second was answered after %v", got)
		}
		w.wantAttempts(4)
	})
}

// While a batch is in flight, Exchange returns at once, and the item goes with the next
// batch.
func TestExchangeBesideABatch(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		a, b, c := newItem(t, "a", 1), newItem(t, "b", 1), newItem(t, "c", 1)
		began := now()
		go w.Exchange(t.Context(), 0, a, time.Second)
		time.Sleep(rtt / 2)
		w.Exchange(t.Context(), 0, b, time.Second)
		w.Exchange(t.Context(), 0, c, time.Second)
		if got := now().Sub(began); got != rtt/2 {
			t.Errorf("returned after %v", got)
		}
		w.Exchange(t.Context(), 1, newItem(t, "other tag", 1), time.Second)
		time.Sleep(10 * rtt)
		if got := b.lastAnswer().Received.Sub(began); got != 2*rtt {
			t.Errorf("answered after %v", got)
		}
		if all := w.wantAttempts(3); len(all[2].ops) != 2 {
			t.Errorf("%v", all)
		}
	})
}

// A caller that leaves, by its context or after its time, leaves its batch to the lane. That
// is no evidence against Redis.
func TestExchangeIsLeft(t *testing.T) {
	for name, leave := range map[string]func(w *world, a *item){
		"context": func(w *world, a *item) {
			ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Millisecond)
			defer cancel()
			w.Exchange(ctx, 0, a, time.Second)
		},
		"time": func(w *world, a *item) { w.Exchange(w.t.Context(), 0, a, 10*time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, breaker.Config{Failures: 1}, func(t *testing.T, w *world) {
				w.redis.script = func(ctx context.Context, at attempt) (wire.Reply, error) {
					if at.n == 0 {
						return hangs(ctx)
					}
					return applied(ctx, at)
				}
				a, began := newItem(t, "a", 7), now()
				leave(w, a)
				if got := now().Sub(began); got != 10*time.Millisecond {
					t.Errorf("returned after %v", got)
				}
				if got := w.breaker.State(); got != breaker.Closed {
					t.Errorf("the breaker is %v", got)
				}
				time.Sleep(100 * time.Millisecond)
				if got := a.account(); got != [4]int64{0, 0, 7, 0} {
					t.Errorf("pending, in flight, paid, lost: %v", got)
				}
				w.wantAttempts(2) // the fake has compared them
			})
		})
	}
}

// While Redis does not answer, callers do not shorten the pauses between attempts.
func TestExchangeWaitsForTheLane(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = failing(1 << 20)
		began := now()
		for i := 0; now().Sub(began) < time.Second; i++ {
			w.Exchange(t.Context(), 0, newItem(t, "a", 1), time.Second)
			time.Sleep(100 * time.Microsecond)
		}
		// Pauses of 5, 10, 20, 40, 80 and 160 ms, times ½ at least. The caller's own attempt
		// is followed by one without a pause.
		if n := len(w.redis.all()); n < 7 || n > 2+5+2*(1000-155/2)/160 {
			t.Errorf("%d attempts in a second", n)
		}
	})
}

// Close ends an exchange at once. The item is dropped.
func TestCloseEndsAnExchange(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, _ attempt) (wire.Reply, error) { return hangs(ctx) }
		a, began := newItem(t, "a", 1), now()
		done := make(chan struct{})
		go func() {
			w.Exchange(t.Context(), 0, a, time.Hour)
			close(done)
		}()
		time.Sleep(rtt)
		w.Close()
		<-done
		if got := now().Sub(began); got != rtt {
			t.Errorf("closed after %v", got)
		}
		if got := a.account(); got != [4]int64{0, 0, 0, 1} {
			t.Errorf("pending, in flight, paid, lost: %v", got)
		}
		w.Exchange(t.Context(), 0, newItem(t, "b", 1), time.Hour)
		w.wantAttempts(1)
	})
}
