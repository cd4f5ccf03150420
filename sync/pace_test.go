package ratesync_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// TestWhatCanWaitTakesHalf checks that due keys take half of a connection's time, for any
// number of keys and lanes. Every key is settled in the end.
func TestWhatCanWaitTakesHalf(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			inBubble(t, calm, func(t *testing.T, w *world) {
				const batches = 40
				var items []*item
				for i := range lanes * batches * wire.MaxOps {
					it := newItem(t, fmt.Sprint(i), 1)
					items = append(items, it)
					w.Enqueue(i%lanes, it, now().Add(time.Millisecond))
				}
				if w.Behind() {
					t.Error("behind before anything is due")
				}
				time.Sleep(time.Millisecond + rtt)
				synctest.Wait()
				if !w.Behind() {
					t.Error("not behind, with full batches left")
				}
				// All lanes together send about as often as one lane that rests one
				// round trip after each round trip.
				time.Sleep(100*rtt - rtt)
				sent := len(w.redis.all())
				if want := 50; sent < want*8/10 || sent > want*12/10+lanes {
					t.Errorf("sent %d batches in %d round trips, want about %d", sent, 100, want)
				}
				time.Sleep(time.Duration(3*lanes*batches) * rtt)
				synctest.Wait()
				if w.Behind() {
					t.Error("behind with nothing left")
				}
				for _, it := range items {
					if it.account() != [4]int64{0, 0, 1, 0} {
						t.Fatalf("%s: %v", it.name, it.account())
					}
				}
			})
		})
	}
}

// An urgent item does not wait for items that can wait, in its lane or in another. Its
// batch carries no items that can wait. They would take as much of Redis's time as before.
func TestUrgentPassesWhatWaits(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		for i := range 20 * wire.MaxOps {
			w.Enqueue(i%2, newItem(t, fmt.Sprint(i), 1), now().Add(time.Millisecond))
		}
		time.Sleep(time.Millisecond + rtt + rtt/2)
		synctest.Wait() // the first batches are answered, and all others wait
		before := len(w.redis.all())
		if before != 2 {
			t.Fatalf("%d batches, want one per lane", before)
		}
		for lane := range 3 {
			began := now()
			it := newItem(t, fmt.Sprint("urgent", lane), 1)
			w.Enqueue(lane, it, time.Time{})
			synctest.Wait()
			all := w.redis.all()
			last := all[len(all)-1]
			if len(all) != before+1 || len(last.ops) != 1 || last.ops[0].Key != it.name || !last.at.Equal(began) {
				t.Errorf("lane %d: %d more batches, the last after %v with %d ops; want one, at once, with one op", lane, len(all)-before, last.at.Sub(began), len(last.ops))
			}
			before++
		}
	})
}
