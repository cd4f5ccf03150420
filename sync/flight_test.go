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

// oneByOne is a Redis that does one batch after the other, at 15 µs an op, half
// a round trip away.
type oneByOne struct {
	f    *fakeRedis
	turn chan struct{} // holds one

	mu   sync.Mutex
	took []time.Duration // of each call
	now  int             // ops on their way
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

// flood has so many items sync at once over 16 tags, and says how long that
// took and how long the slowest call.
func flood(t *testing.T, inFlight, items int) (all, slowest time.Duration, most int) {
	synctest.Test(t, func(t *testing.T) {
		var o *oneByOne
		w := newWorld(t, calm, func(cfg *ratesync.Config) {
			o = &oneByOne{f: cfg.Caller.(*fakeRedis), turn: make(chan struct{}, 1)}
			cfg.Caller, cfg.Names.Tags, cfg.InFlight = o, 16, inFlight
			o.f.script = o.serve
		})
		began := now().Add(time.Millisecond) // when all are there
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

// Cause: the batches of all tags waited for each other in Redis, each on its own
// clock: a flood of cold keys made a Redis that was well look slow, and opened
// the breaker. With a bound they wait here, and it takes no longer.
func TestFloodWaitsBeforeItsClockStarts(t *testing.T) {
	const batch = wire.MaxOps * 15 * time.Microsecond
	all, slowest, most := flood(t, 4*wire.MaxOps, 16*10*wire.MaxOps)
	free, crowd, crowded := flood(t, 0, 16*10*wire.MaxOps)
	t.Logf("%v, slowest call %v, %d ops at a time; without a bound %v, %v, %d", all, slowest, most, free, crowd, crowded)
	if slowest > rtt+4*batch || most > 4*wire.MaxOps {
		t.Errorf("a call took %v, with %d ops at a time", slowest, most)
	}
	if crowd < 15*batch || crowded != 16*wire.MaxOps {
		t.Errorf("without a bound a call took %v, with %d ops at a time: nothing is shown", crowd, crowded)
	}
	if all > free+free/20 {
		t.Errorf("it took %v, and %v without a bound", all, free)
	}
}

// Small batches do not wait for each other.
func TestSmallBatchesFlyTogether(t *testing.T) {
	if _, slowest, most := flood(t, 4*wire.MaxOps, 16*16); most != 16*16 || slowest > rtt+16*16*15*time.Microsecond {
		t.Errorf("the slowest of 16 batches of 16 took %v, with %d ops at a time", slowest, most)
	}
}

// A bound below a batch lets one through at a time.
func TestFlightOfOneBatch(t *testing.T) {
	if _, _, most := flood(t, 1, 16*2*wire.MaxOps); most != wire.MaxOps {
		t.Errorf("%d ops at a time", most)
	}
}

// A Redis that hangs keeps nobody but those who are on their way, each for a
// time-out, and Close waits for none of those who wait here.
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
