package ratesync_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// A queue holds the items in use only, in every state of the breaker. 20 000 items come
// and go, 11 at a time, and the queue never holds more than 11.
func TestRemove(t *testing.T) {
	hours := trips
	hours.OpenFor = 24 * time.Hour
	fails := func(w *world) {
		w.redis.script = func(context.Context, attempt) (wire.Reply, error) { return wire.Reply{}, errLost }
	}
	states := map[string]struct {
		breaker breaker.Config
		bring   func(w *world)
	}{
		"closed":                    {trips, func(*world) {}},
		"closed, while Redis fails": {calm, fails},
		"open":                      {trips, fails},
		"open for hours":            {hours, func(w *world) { open(w.t, w.breaker) }},
		"hung": {trips, func(w *world) {
			w.redis.script = func(ctx context.Context, _ attempt) (wire.Reply, error) { return hangs(ctx) }
		}},
		"refused": {trips, func(w *world) {
			w.redis.empty = true
			w.redis.script = func(context.Context, attempt) (wire.Reply, error) { return wire.Reply{}, refusal("HLBATCH") }
		}},
	}
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			inBubble(t, state.breaker, func(t *testing.T, w *world) {
				state.bring(w)
				w.Enqueue(0, newItem(t, "first", 1), time.Time{})
				time.Sleep(time.Second)
				const live = 11 // the first item included
				var items []*item
				for i := range 20_000 {
					it := newItem(t, fmt.Sprint(i), 1)
					due := time.Time{}
					if i%2 == 0 {
						due = now().Add(time.Duration(i%7) * time.Hour)
					}
					w.Enqueue(0, it, due)
					if items = append(items, it); len(items) >= live {
						w.Remove(0, items[0])
						w.Enqueue(0, items[0], due) // a decision made before the removal
						items = items[1:]
					}
					if n := w.Queued(0); n > live {
						t.Fatalf("%d items are queued, want at most the %d in use", n, live)
					}
				}
				w.Close()
				w.Remove(0, items[0]) // closed: nothing is queued
			})
		})
	}
}

// A removed item is not sent any more. If it was frozen before, its answer is still
// settled.
func TestRemoveOfWhatIsOnItsWay(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		a, b := newItem(t, "a", 1), newItem(t, "b", 1)
		w.Enqueue(0, a, now())
		synctest.Wait()
		w.Enqueue(0, b, now().Add(time.Hour))
		w.Remove(0, a)
		w.Remove(0, b)
		w.Remove(0, b)
		a.owe(1)
		w.Enqueue(0, a, now())
		time.Sleep(2 * time.Hour)
		w.wantAttempts(1)
		if a.account() != [4]int64{1, 0, 1, 0} || b.account() != [4]int64{1, 0, 0, 0} {
			t.Errorf("%v, %v", a.account(), b.account())
		}
	})
}
