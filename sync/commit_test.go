package ratesync_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

var limit = hybridlimit.PerSecond(1000)

func TestUrgentGoesAtOnce(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		began := now()
		a := newItem(t, "a", 3)
		w.Enqueue(2, a, began)
		time.Sleep(rtt)
		got := w.wantAttempts(1)[0]
		want := wire.Envelope{Key: "hl:v2:{2}:@env:p1", Epoch: "hl:v2:{2}:@epoch", Seq: 1, TTL: ratesync.EnvelopeTTL}
		if got.env != want || !got.at.Equal(began) {
			t.Errorf("sent %+v at %v, want %+v at %v", got.env, got.at, want, began)
		}
		ans := a.lastAnswer()
		if !ans.Sent.Equal(began) || !ans.Received.Equal(began.Add(rtt)) || ans.RedisNow != now().UnixMicro() || ans.Born != 1 {
			t.Errorf("answer %+v", ans)
		}
		if a.account() != [4]int64{0, 0, 3, 0} {
			t.Errorf("account %v", a.account())
		}
	})
}

// While one batch is in flight, other items gather for the next batch.
func TestGroupCommit(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		first := newItem(t, "first", 1)
		w.Enqueue(0, first, now())
		want := map[string]int64{}
		for i := range 10 {
			synctest.Wait() // the lane has taken the queued items
			it := newItem(t, fmt.Sprint("k", i), int64(i+1))
			want[it.name] = int64(i + 1)
			w.Enqueue(0, it, now())
			time.Sleep(rtt / 20)
		}
		time.Sleep(2 * rtt)
		all := w.wantAttempts(2)
		if !maps.Equal(all[1].owed(), want) {
			t.Errorf("the second batch carries %v, want %v", all[1].owed(), want)
		}
		if d := all[1].at.Sub(all[0].at); d != rtt || all[1].env.Seq != 2 {
			t.Errorf("the second batch went %v after the first, sequence %d", d, all[1].env.Seq)
		}
	})
}

// Tags do not wait for each other.
func TestTagsAreIndependent(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.env.Key == "hl:v2:{0}:@env:p1" {
				return hangs(ctx)
			}
			return applied(ctx, a)
		}
		stuck := newItem(t, "stuck", 1)
		w.Enqueue(0, stuck, now())
		for tag := 1; tag < tags; tag++ {
			it := newItem(t, fmt.Sprint(tag), 1)
			w.Enqueue(tag, it, now())
			defer func() {
				if it.account() != [4]int64{0, 0, 1, 0} {
					t.Errorf("tag %d: %v", tag, it.account())
				}
			}()
		}
		time.Sleep(rtt)
		for _, a := range w.wantAttempts(tags) {
			if a.env.Seq != 1 {
				t.Errorf("%s begins with sequence %d, want 1", a.env.Key, a.env.Seq)
			}
		}
	})
}

func TestLazyWaitsUntilDue(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		const interval = 50 * time.Millisecond
		began := now()
		a, b, c := newItem(t, "a", 1), newItem(t, "b", 1), newItem(t, "c", 1)
		w.Enqueue(0, a, began.Add(interval))
		w.Enqueue(0, b, began.Add(interval+time.Millisecond))
		w.Enqueue(0, c, began.Add(interval))
		time.Sleep(interval - 1)
		w.wantAttempts(0)
		time.Sleep(time.Nanosecond)
		if got := w.wantAttempts(1)[0].owed(); len(got) != 2 || got["b"] != 0 {
			t.Errorf("sent %v, want a and c", got)
		}
		// b became due while the batch was in flight.
		time.Sleep(rtt)
		if all := w.wantAttempts(2); !all[1].at.Equal(began.Add(interval + rtt)) {
			t.Errorf("b was sent %v after the start, want a round trip after the interval", all[1].at.Sub(began))
		}
	})
}

func TestDueMovesForwardOnly(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name string
		dues []time.Duration
		want time.Duration
	}{
		{"forward", []time.Duration{5 * s, 2 * s}, 2 * s},
		{"not back", []time.Duration{2 * s, 5 * s}, 2 * s},
		{"to now", []time.Duration{5 * s, 0}, 0},
		{"past", []time.Duration{5 * s, -s}, 0},
		{"back and forth", []time.Duration{5 * s, 7 * s, 3 * s, 4 * s}, 3 * s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, calm, func(t *testing.T, w *world) {
				began := now()
				// One item is due earlier and one later, so that the heap has an order to keep.
				early, late := newItem(t, "early", 0), newItem(t, "late", 0)
				w.Enqueue(1, early, began.Add(s/2))
				w.Enqueue(1, late, began.Add(10*s))
				a := newItem(t, "a", 1)
				for _, due := range tc.dues {
					w.Enqueue(1, a, began.Add(due))
					synctest.Wait()
				}
				time.Sleep(20 * s)
				// One message: the node was queued once.
				if got := w.wantAttempts(1)[0]; got.at.Sub(began) != tc.want {
					t.Errorf("sent after %v, want %v", got.at.Sub(began), tc.want)
				}
			})
		})
	}
}

// An item that is enqueued while its own batch is in flight goes with the next batch.
func TestEnqueueDuringFlight(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		a := newItem(t, "a", 1)
		w.Enqueue(0, a, now())
		time.Sleep(rtt / 2)
		a.owe(10)
		w.Enqueue(0, a, now())
		time.Sleep(2 * rtt)
		all := w.wantAttempts(2)
		if all[0].owed()["a"] != 1 || all[1].owed()["a"] != 10 {
			t.Errorf("sent %v, then %v", all[0].owed(), all[1].owed())
		}
		if a.account() != [4]int64{0, 0, 11, 0} {
			t.Errorf("account %v", a.account())
		}
	})
}

// A Settle may enqueue its own node.
func TestEnqueueInSettle(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		a := newItem(t, "a", 1)
		rounds := 0
		a.onSettle = func(ratesync.Answer) {
			if rounds++; rounds < 5 {
				a.owe(1)
				w.Enqueue(0, a, now())
			}
		}
		w.Enqueue(0, a, now())
		time.Sleep(5 * rtt)
		w.wantAttempts(5)
	})
}

func TestNothingToSayIsNotSent(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		silent, a := newItem(t, "silent", 0), newItem(t, "a", 1)
		w.Enqueue(0, silent, now())
		time.Sleep(rtt)
		w.wantAttempts(0)
		w.Enqueue(0, silent, now().Add(rtt))
		w.Enqueue(0, a, now().Add(rtt))
		time.Sleep(2 * rtt)
		all := w.wantAttempts(1)
		if got := all[0].owed(); !maps.Equal(got, map[string]int64{"a": 1}) || all[0].env.Seq != 1 {
			t.Errorf("sent %v with sequence %d", got, all[0].env.Seq)
		}
		if got := w.Stats(); got != (ratesync.Stats{Messages: 1, Ops: 1}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestLargeBatchesAreSplit(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		const n = 2*wire.MaxOps + 7
		began := now()
		items := make([]*item, n)
		for i := range items {
			items[i] = newItem(t, fmt.Sprint(i), 1)
			w.Enqueue(0, items[i], began.Add(time.Millisecond))
		}
		time.Sleep(10 * rtt) // the lane pauses between full batches
		var sizes []int
		for _, a := range w.wantAttempts(3) {
			sizes = append(sizes, len(a.ops))
		}
		if !reflect.DeepEqual(sizes, []int{wire.MaxOps, wire.MaxOps, 7}) {
			t.Errorf("batches of %v", sizes)
		}
		for _, it := range items {
			if it.account() != [4]int64{0, 0, 1, 0} {
				t.Fatalf("%s: %v", it.name, it.account())
			}
		}
		if got := w.Stats(); got.Messages != 3 || got.Ops != n {
			t.Errorf("%+v", got)
		}
	})
}

func TestRTT(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		if w.RTT() != 0 {
			t.Errorf("RTT = %v before the first answer, want 0", w.RTT())
		}
		delays := []time.Duration{8 * time.Millisecond, 16 * time.Millisecond}
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.n >= len(delays) {
				return wire.Reply{}, errLost // not an answer: not measured
			}
			return replyTo(a), wait(ctx, delays[a.n])
		}
		want := []time.Duration{8 * time.Millisecond, 9 * time.Millisecond}
		for i := range want {
			a := newItem(t, "a", 1)
			w.Enqueue(i, a, now())
			time.Sleep(timeout / 2)
			if w.RTT() != want[i] {
				t.Errorf("RTT = %v after %v, want %v", w.RTT(), delays[:i+1], want[i])
			}
		}
		a := newItem(t, "a", 1)
		w.Enqueue(2, a, now())
		time.Sleep(2 * timeout)
		if w.RTT() != want[1] {
			t.Errorf("RTT = %v after failures, want no change", w.RTT())
		}
	})
}
