package ratesync_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// stuck lets a first batch pass, and the second one hang until its time limit. Both have envelopes. more answers the attempts after
// them.
func stuck(t *testing.T, w *world, more func(ctx context.Context, a attempt) (wire.Reply, error)) (began time.Time) {
	w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
		switch a.n {
		case 0:
			return applied(ctx, a)
		case 1:
			return hangs(ctx)
		}
		return more(ctx, a)
	}
	w.Enqueue(0, newItem(t, "first", 1), time.Time{})
	time.Sleep(2 * rtt)
	w.Enqueue(0, newItem(t, "stuck", 1), time.Time{})
	time.Sleep(time.Microsecond)
	return now()
}

// A caller that only asks does not wait for the batch in flight. Four callers do so at once.
func TestBesideABatch(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		began := stuck(t, w, applied)
		var items []*item
		for i := range 6 {
			it := asker(t, fmt.Sprint(i), 1)
			items = append(items, it)
			go w.Exchange(t.Context(), 0, it, time.Second)
		}
		time.Sleep(rtt + time.Millisecond)
		var answered []time.Duration
		for _, it := range items {
			if n, _ := it.count(); n > 0 {
				answered = append(answered, it.lastAnswer().Received.Sub(began))
			}
		}
		if want := slices.Repeat([]time.Duration{rtt}, 4); !slices.Equal(answered, want) {
			t.Errorf("answered after %v, want %v", answered, want)
		}
		time.Sleep(2 * timeout)
		if got, want := w.sequences(), []int64{1, 2, 0, 0, 0, 0, 2, 0}; !slices.Equal(got, want) {
			t.Errorf("sequence numbers %v, want %v", got, want)
		}
		for _, it := range items {
			if n, uncertain := it.count(); n != 1 || uncertain > 0 {
				t.Errorf("%s: %d answers, %d uncertain units", it.name, n, uncertain)
			}
		}
	})
}

// An op that does more than ask waits for the lane, with those that come meanwhile.
func TestNotBesideIfItPays(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		began := stuck(t, w, applied)
		a, b := newItem(t, "a", 3), newItem(t, "b", 4)
		go w.Exchange(t.Context(), 0, a, time.Second)
		time.Sleep(2 * rtt)
		w.Enqueue(0, b, time.Time{})
		a.owe(1) // it is frozen: this is for the next batch
		w.Enqueue(0, a, time.Time{})
		time.Sleep(2 * timeout)
		all := w.wantAttempts(5)
		if got := all[3].owed(); got["a"] != 3 || got["b"] != 4 {
			t.Errorf("%v: %v", all, got)
		}
		if got := all[4].owed(); len(got) != 1 || got["a"] != 1 {
			t.Errorf("%v: %v", all, got)
		}
		if got := a.lastAnswer().Received.Sub(began); got < timeout-time.Millisecond {
			t.Errorf("answered after %v", got)
		}
	})
}

// More ops than fit in a message are left to the lane while a batch hangs. Each is sent once. Regression: one batch took all
// of them, and the process panicked.
func TestManyLeftToTheLane(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		stuck(t, w, applied)
		var items []*item
		for i := range 3*wire.MaxOps + 5 {
			it := newItem(t, fmt.Sprint(i), 1)
			items = append(items, it)
			go w.Exchange(t.Context(), 0, it, time.Second)
		}
		time.Sleep(2 * timeout)
		for _, it := range items {
			if n, _ := it.count(); n != 1 {
				t.Errorf("%s: %d answers", it.name, n)
			}
		}
		for _, a := range w.redis.attempts {
			if len(a.ops) > wire.MaxOps {
				t.Errorf("%v", a)
			}
		}
	})
}

// A message beside a batch that has no answer is sent again by the lane, with an envelope. Nothing goes beside until Redis answers.
func TestBesideWithoutAnAnswer(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		stuck(t, w, func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.n == 2 {
				return wire.Reply{}, errLost
			}
			return applied(ctx, a)
		})
		a, b := asker(t, "a", 5), asker(t, "b", 7)
		go w.Exchange(t.Context(), 0, a, time.Second)
		time.Sleep(2 * rtt)
		w.Exchange(t.Context(), 0, b, 10*time.Millisecond)
		if n, _ := b.count(); n > 0 {
			t.Error("answered beside a batch after a message was lost")
		}
		time.Sleep(2 * timeout)
		if got, want := w.sequences(), []int64{1, 2, 0, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("sequence numbers %v, want %v", got, want)
		}
		for it, want := range map[*item]int64{a: 5, b: 0} {
			if n, uncertain := it.count(); n != 1 || uncertain != want {
				t.Errorf("%s: %d answers, %d uncertain units, want %d", it.name, n, uncertain, want)
			}
		}
	})
}

// A message beside a batch that Redis refuses goes the way of a refused batch.
func TestRefusedBeside(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		stuck(t, w, func(ctx context.Context, a attempt) (wire.Reply, error) {
			if slices.ContainsFunc(a.ops, func(op wire.Op) bool { return op.Key == "bad" }) {
				return wire.Reply{}, fmt.Errorf("%w: bad", wire.ErrRefused)
			}
			return applied(ctx, a)
		})
		bad := asker(t, "bad", 1)
		var dropped atomic.Int64
		bad.onDrop = func() { dropped.Add(1) }
		w.Exchange(t.Context(), 0, bad, 10*time.Millisecond)
		time.Sleep(2 * timeout)
		if _, uncertain := bad.count(); dropped.Load() != 1 || uncertain != 0 {
			t.Errorf("dropped %d times, %d units uncertain", dropped.Load(), uncertain)
		}
		if got := w.Stats(); got.Refused != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// An item that is enqueued while its op is beside a batch is sent again after that.
func TestEnqueuedWhileBeside(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		stuck(t, w, applied)
		a := asker(t, "a", 1)
		go w.Exchange(t.Context(), 0, a, time.Second)
		time.Sleep(rtt / 2)
		w.Enqueue(0, a, time.Time{})
		time.Sleep(2 * timeout)
		if n, _ := a.count(); n != 2 {
			t.Errorf("%d answers, want 2", n)
		}
	})
}

// Nothing goes beside if no envelope has shown for two seconds that Redis has not lost data.
func TestBesideNeedsAnEnvelopeNow(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if a.n == 1 {
				return hangs(ctx)
			}
			return applied(ctx, a)
		}
		w.Enqueue(0, newItem(t, "first", 1), time.Time{})
		time.Sleep(2 * time.Second)
		w.Enqueue(0, newItem(t, "stuck", 1), time.Time{})
		time.Sleep(time.Microsecond)
		a := asker(t, "a", 1)
		w.Exchange(t.Context(), 0, a, 100*time.Millisecond)
		if n, _ := a.count(); n != 0 {
			t.Error("it was sent beside the batch")
		}
		time.Sleep(2 * timeout)
		if got, want := w.sequences(), []int64{1, 2, 2, 0}; !slices.Equal(got, want) {
			t.Errorf("sequence numbers %v, want %v", got, want)
		}
	})
}

// Close ends a message beside a batch at once, and both ops are dropped once.
func TestCloseBeside(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		stuck(t, w, func(ctx context.Context, _ attempt) (wire.Reply, error) { return hangs(ctx) })
		a := asker(t, "a", 1)
		var dropped atomic.Int64
		a.onDrop = func() { dropped.Add(1) }
		done := make(chan struct{})
		go func() {
			w.Exchange(t.Context(), 0, a, time.Hour)
			close(done)
		}()
		time.Sleep(2 * rtt)
		began := now()
		w.Close()
		<-done
		if dropped.Load() != 1 || now() != began {
			t.Errorf("dropped %d times, closed after %v", dropped.Load(), now().Sub(began))
		}
	})
}
