package ratesync

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// queued is an Item that is only queued.
type queued struct{ node Node }

func (q *queued) Node() *Node                      { return &q.node }
func (q *queued) Freeze(time.Time) (wire.Op, bool) { return wire.Op{}, false }
func (q *queued) Settle(Answer)                    {}
func (q *queued) Uncertain(wire.Op)                {}
func (q *queued) Drop()                            {}

// TestQueueGivesMemoryBack checks that a queue gives memory back when it becomes shorter, and that it stays in order.
func TestQueueGivesMemoryBack(t *testing.T) {
	const items = 100_000
	rng := rand.New(rand.NewPCG(1, 2))
	var q queue
	for range items {
		q.put(&queued{}, rng.Int64N(1e9))
	}
	last := int64(-1)
	for len(q) > 0 {
		it := q.take(1e9, 1, false)[0]
		if due := it.Node().due; due < last || it.Node().place != 0 {
			t.Fatalf("due %d after %d, place %d", due, last, it.Node().place)
		} else {
			last = due
		}
		for i, it := range q[:min(len(q), 3)] {
			if int(it.Node().place) != i+1 {
				t.Fatalf("place %d, want %d", it.Node().place, i+1)
			}
		}
		if cap(q) > max(4*len(q), 4*leastShrunk) {
			t.Fatalf("%d items take the memory of %d", len(q), cap(q))
		}
	}
}
