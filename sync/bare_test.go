package ratesync_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// asker returns an item whose ops only ask.
func asker(t *testing.T, name string, asks ...int64) *item {
	i := newItem(t, name, 0)
	i.asks = asks
	return i
}

// sequences returns the sequence numbers of all attempts; 0: no envelope.
func (w *world) sequences() (all []int64) {
	for _, a := range w.redis.all() {
		all = append(all, a.env.Seq)
	}
	return all
}

// A batch that only asks has no envelope within two seconds of a batch that has one: a
// lane must notice soon that Redis has lost data.
func TestAsksNeedNoEnvelope(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		a := asker(t, "a", 3)
		for range 4 { // at 0, 0.8, 1.6 and 2.4 s
			w.Enqueue(0, a, time.Time{})
			time.Sleep(800 * time.Millisecond)
		}
		if got, want := w.sequences(), []int64{1, 0, 0, 2}; !slices.Equal(got, want) {
			t.Errorf("sequence numbers %v, want %v", got, want)
		}
		if a.uncertain != 0 {
			t.Errorf("%d units are uncertain, but each message had an answer", a.uncertain)
		}
		owing := newItem(t, "b", 1)
		for _, it := range []*item{a, owing} { // both are due at the same time
			w.Enqueue(0, it, now().Add(100*time.Millisecond))
		}
		time.Sleep(200 * time.Millisecond)
		if all := w.redis.all(); len(all) != 5 || all[4].env.Seq != 3 || len(all[4].ops) != 2 {
			t.Errorf("with owed units: %v", all)
		}
	})
}

// While other messages show losses, batches that only ask need an envelope less often. They
// need it again as soon as no other message shows them.
func TestAsksOfAWatchedServer(t *testing.T) {
	var watched atomic.Bool
	watched.Store(true)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, calm, func(cfg *ratesync.Config) { cfg.Watched = func(int) bool { return watched.Load() } })
		a := asker(t, "a", 3)
		ask := func(after time.Duration) {
			time.Sleep(after)
			w.Enqueue(0, a, time.Time{})
			time.Sleep(time.Millisecond)
		}
		for range 5 { // at 0, 8, 16, 24 and 32 s
			ask(0)
			time.Sleep(8 * time.Second)
		}
		ask(0)
		watched.Store(false)
		ask(time.Second)
		ask(time.Second)
		if got, want := w.sequences(), []int64{1, 0, 0, 0, 2, 0, 3, 0}; !slices.Equal(got, want) {
			t.Errorf("sequence numbers %v, want %v", got, want)
		}
	})
}

// A message without an envelope is sent once. If it has no answer, the same ops are sent in
// an envelope until there is one, and their units are uncertain once.
func TestAskWithoutAnAnswer(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		a, b := asker(t, "a", 3, 1), asker(t, "b", 5)
		w.redis.script = func(ctx context.Context, at attempt) (wire.Reply, error) {
			if at.n >= 1 && at.n <= 3 {
				return wire.Reply{}, errLost
			}
			return applied(ctx, at)
		}
		w.Enqueue(0, a, time.Time{})
		time.Sleep(100 * time.Millisecond)
		w.Enqueue(0, a, now())
		w.Enqueue(0, b, now())
		time.Sleep(500 * time.Millisecond)
		if got, want := w.sequences(), []int64{1, 0, 2, 2, 2}; !slices.Equal(got, want) {
			t.Fatalf("sequence numbers %v, want %v", got, want)
		}
		if all := w.redis.all(); len(all[1].ops)+len(all[4].ops) != 4 {
			t.Errorf("%d ops at first, %d at last, want both twice", len(all[1].ops), len(all[4].ops))
		}
		if a.uncertain != 4 || b.uncertain != 5 {
			t.Errorf("%d and %d units are uncertain, want 4 and 5", a.uncertain, b.uncertain)
		}
		if got := w.Stats(); got.Failures != 3 || got.Seen != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A message without an envelope that Redis refuses is dropped like any other.
func TestRefusedAsk(t *testing.T) {
	inBubble(t, calm, func(t *testing.T, w *world) {
		a := asker(t, "a", 1)
		var dropped atomic.Int64
		a.onDrop = func() { dropped.Add(1) }
		w.redis.script = func(ctx context.Context, at attempt) (wire.Reply, error) {
			if at.n == 1 {
				return wire.Reply{}, wire.ErrRefused
			}
			return applied(ctx, at)
		}
		for range 3 {
			w.Enqueue(0, a, time.Time{})
			time.Sleep(100 * time.Millisecond)
		}
		if got, want := w.sequences(), []int64{1, 0, 2}; !slices.Equal(got, want) || dropped.Load() != 1 || a.uncertain != 0 {
			t.Errorf("sequence numbers %v, want %v; %d dropped, %d uncertain", got, want, dropped.Load(), a.uncertain)
		}
		if got := w.Stats(); got.Refused != 1 {
			t.Errorf("%+v", got)
		}
	})
}

var _ ratesync.Item = (*item)(nil)

// An ask that tells a view needs an envelope if the last one is older than 100 ms, also for a server that is watched: a failover may
// have lost writes.
func TestAsksThatTellAView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, calm, func(cfg *ratesync.Config) { cfg.Watched = func(int) bool { return true } })
		a := asker(t, "a", 3)
		a.view = wire.View{Born: 1, Level: 5, At: 2}
		for range 5 { // at 0, 45, 90, 135 and 180 ms
			w.Enqueue(0, a, time.Time{})
			time.Sleep(45 * time.Millisecond)
		}
		if got, want := w.sequences(), []int64{1, 0, 0, 2, 0}; !slices.Equal(got, want) {
			t.Errorf("sequence numbers %v, want %v", got, want)
		}
	})
}
