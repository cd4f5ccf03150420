package ratesync_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// oneByOne is a Redis that applies one batch after the other, in 15 µs per op. It is half
// a round trip away.
type oneByOne struct {
	f    *fakeRedis
	turn chan struct{} // holds one

	mu   sync.Mutex
	took []time.Duration // duration of each call
	now  int             // ops in flight
	most int
}

func (o *oneByOne) Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error) {
	began := time.Now()
	o.note(len(ops), 0)
	r, err := o.f.Batch(ctx, env, ops)
	o.note(-len(ops), time.Since(began))
	return r, err
}

func (o *oneByOne) serve(_ context.Context, a attempt) (wire.Reply, error) {
	time.Sleep(rtt / 2)
	o.turn <- struct{}{}
	time.Sleep(time.Duration(len(a.ops)) * 15 * time.Microsecond)
	<-o.turn
	time.Sleep(rtt / 2)
	return replyTo(a), nil
}

func (o *oneByOne) note(ops int, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now += ops
	o.most = max(o.most, o.now)
	if took > 0 {
		o.took = append(o.took, took)
	}
}

// flood syncs items at once over 16 tags. It returns the duration of all, the duration of
// the slowest call, and the most ops in flight.
func flood(t *testing.T, inFlight, items int) (all, slowest time.Duration, most int) {
	synctest.Test(t, func(t *testing.T) {
		var o *oneByOne
		w := newWorld(t, calm, func(cfg *ratesync.Config) {
			o = &oneByOne{f: cfg.Caller.(*fakeRedis), turn: make(chan struct{}, 1)}
			cfg.Caller, cfg.Names.Tags, cfg.InFlight = o, 16, inFlight
			o.f.script = o.serve
		})
		began := now().Add(time.Millisecond) // when all items are enqueued
		made := make([]*item, items)
		for i := range made {
			made[i] = newItem(t, fmt.Sprint("k", i), 1)
			w.Enqueue(i%16, made[i], began)
		}
		if err := w.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, slowest, most = time.Since(began), slices.Max(o.took), o.most
		for _, it := range made {
			if it.account() != [4]int64{0, 0, 1, 0} {
				t.Fatalf("%s: %v", it.name, it.account())
			}
		}
	})
	return all, slowest, most
}

// Regression: the batches of all tags waited for each other in Redis, each with its clock
// running. A flood of cold keys made a healthy Redis look slow, and opened the breaker.
// With a bound the batches wait in the process, and the total time is no longer.
func TestFloodWaitsBeforeItsClockStarts(t *testing.T) {
	const batch = wire.MaxOps * 15 * time.Microsecond
	all, slowest, most := flood(t, 4*wire.MaxOps, 16*10*wire.MaxOps)
	free, crowd, crowded := flood(t, 0, 16*10*wire.MaxOps)
	t.Logf("with a bound: %v in all, slowest call %v, %d ops at a time; without: %v, %v, %d", all, slowest, most, free, crowd, crowded)
	if slowest > rtt+4*batch || most > 4*wire.MaxOps {
		t.Errorf("a call took %v, with %d ops at a time", slowest, most)
	}
	if crowd < 15*batch || crowded != 16*wire.MaxOps {
		t.Errorf("without a bound a call took %v, with %d ops at a time: the test does not show the problem", crowd, crowded)
	}
	if all > free+free/20 {
		t.Errorf("took %v with a bound, %v without", all, free)
	}
}

// Small batches do not wait for each other.
func TestSmallBatchesFlyTogether(t *testing.T) {
	if _, slowest, most := flood(t, 4*wire.MaxOps, 16*16); most != 16*16 || slowest > rtt+16*16*15*time.Microsecond {
		t.Errorf("the slowest of 16 batches of 16 took %v, with %d ops at a time", slowest, most)
	}
}

// A bound below the size of a batch permits one batch at a time.
func TestFlightOfOneBatch(t *testing.T) {
	if _, _, most := flood(t, 1, 16*2*wire.MaxOps); most != wire.MaxOps {
		t.Errorf("%d ops at a time, want one batch", most)
	}
}

// A hanging Redis delays only the batches in flight, each for one time-out. Close does not
// wait for batches that wait in the process.
func TestFlightWithARedisThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all atomic.Bool
		w := newWorld(t, calm, func(cfg *ratesync.Config) { cfg.Names.Tags, cfg.InFlight = 16, wire.MaxOps })
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			if all.Load() || strings.Contains(a.env.Key, "{0}") {
				return hangs(ctx)
			}
			return applied(ctx, a)
		}
		for i := range 16 * wire.MaxOps {
			w.Enqueue(i%16, newItem(t, fmt.Sprint("k", i), 1), now())
		}
		time.Sleep(10 * timeout)
		if s := w.Stats(); s.Failures == 0 || s.Messages-s.Failures < 15 {
			t.Errorf("%+v", s)
		}
		all.Store(true)
		for i := range 16 * wire.MaxOps {
			w.Enqueue(i%16, newItem(t, fmt.Sprint("l", i), 1), now())
		}
		time.Sleep(timeout / 2)
		began := now()
		w.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}
	})
}
