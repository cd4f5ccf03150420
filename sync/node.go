package ratesync

import (
	"container/heap"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Item has something to tell Redis. The engine calls its methods from a
// lane's goroutine, one at a time, and holds no lock meanwhile. They may call
// Enqueue, but not Close, which waits for that goroutine.
type Item interface {
	// Node is the item's place: always the same one.
	Node() *Node
	// Freeze returns the op to send, or false when nothing is left to say.
	// After true it is not called again before Settle or Drop.
	Freeze(now time.Time) (wire.Op, bool)
	// Settle brings the answer to the frozen op.
	Settle(Answer)
	// Drop says that the frozen op was given up: Redis refused it for good,
	// or the engine was closed before an answer came.
	Drop()
}

// Answer is what Redis said to one op.
type Answer struct {
	wire.Answer
	RedisNow int64     // µs of Redis time
	Sent     time.Time // when the batch was first sent: leases count from here
	Received time.Time // when the answer came
}

// Node is an Item's place in its lane, part of the item so that queueing one
// allocates nothing. The zero Node is ready for Engine.Enqueue; its fields
// belong to the lane, but for Tag.
type Node struct {
	due   int64 // ns after the engine was made
	place int32 // index in the queue plus one; 0: not queued; gone

	// Tag is for the item to remember its lane by: here it costs no memory.
	Tag uint16
}

// gone is the place of an item that was removed: it is queued no more.
const gone = -1

// urgent is how far ahead of its time is due what is to go at once: before all
// that may wait, whose due times are not negative.
const urgent = 1 << 62

// queue is a heap of items by due time.
type queue []Item

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].Node().due < q[j].Node().due }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].Node().place, q[j].Node().place = int32(i+1), int32(j+1)
}

// Push is for package heap.
func (q *queue) Push(x any) {
	it := x.(Item)
	*q = append(*q, it)
	it.Node().place = int32(len(*q))
}

// Pop is for package heap.
func (q *queue) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	it.Node().place = 0
	return it
}

// put queues an item for due, or moves it forward; later than it is does
// nothing. The item must not have been removed.
func (q *queue) put(it Item, due int64) {
	switch n := it.Node(); {
	case n.place == 0:
		n.due = due
		heap.Push(q, it)
	case due < n.due:
		n.due = due
		heap.Fix(q, int(n.place)-1)
	}
}

// remove takes an item out for good.
func (q *queue) remove(it Item) {
	n := it.Node()
	if n.place > 0 {
		heap.Remove(q, int(n.place)-1)
	}
	n.place = gone
}

// clear empties the queue.
func (q *queue) clear() {
	for _, it := range *q {
		it.Node().place = 0
	}
	*q = nil
}

// take removes up to most items that are due by then.
func (q *queue) take(then int64, most int) []Item {
	out := make([]Item, 0, min(len(*q), most))
	for len(*q) > 0 && len(out) < most && (*q)[0].Node().due <= then {
		out = append(out, heap.Pop(q).(Item))
	}
	return out
}
