package ratesync

import (
	"container/heap"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Item is a source of ops for Redis. The engine calls Freeze, Settle, Uncertain and Drop one at a time and without a
// lock: from a lane's goroutine, from that of a caller of Exchange, or Drop from Close. They may call Enqueue. They
// must not call Close, which waits for these goroutines.
type Item interface {
	// Node returns the item's place in the queue: always the same one. It may be called under the lane's lock.
	Node() *Node
	// Freeze returns the op to send, or false if there is nothing to send. After true, Freeze is not called again
	// before Settle or Drop.
	Freeze(now time.Time) (wire.Op, bool)
	// Settle is called with the answer to the frozen op.
	Settle(Answer)
	// Uncertain is called when a message with the frozen op had no envelope and no answer. Redis may have granted the
	// units that the op asks for, and no caller gets them. The op is then sent with an envelope.
	Uncertain(wire.Op)
	// Drop is called when the frozen op was given up: Redis refused it for good, or the engine was closed before an
	// answer came.
	Drop()
}

// Answer is the answer of Redis to one op.
type Answer struct {
	wire.Answer
	RedisNow int64     // µs of Redis time
	Sent     time.Time // the batch was first sent; leases count from here
	Received time.Time // the answer came
}

// Node is an Item's place in its lane. It is part of the item, so that Enqueue allocates no memory for it. The zero
// Node is ready for Engine.Enqueue. All fields except Tag belong to the lane.
type Node struct {
	due   int64 // ns after the engine was made
	place int32 // index in the queue plus one; 0: not queued; gone: removed

	out    bool // a batch has the item, or is about to
	wanted bool // the item is to be queued for due when it is back

	// Tag is the item's tag. The item sets it before it is queued. It stands here because it fills padding and so costs
	// no memory.
	Tag uint16
}

// gone is the place of a removed item. It is never queued again.
const gone = -1

// urgent is subtracted from the due time of immediate items, so that they sort first. All other due times are at least
// 0.
const urgent = 1 << 62

// queue is a heap of items by due time.
type queue []Item

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].Node().due < q[j].Node().due }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].Node().place, q[j].Node().place = int32(i+1), int32(j+1)
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	it := x.(Item)
	*q = append(*q, it)
	it.Node().place = int32(len(*q))
}

// Pop implements heap.Interface. It gives back the memory of a queue that was much longer: a process with a million
// keys may have queued them all at once.
func (q *queue) Pop() any {
	old := *q
	n := len(old) - 1
	it := old[n]
	old[n] = nil
	*q = old[:n]
	if n >= leastShrunk && n <= cap(old)/4 {
		*q = append(make(queue, 0, cap(old)/2), old[:n]...)
	}
	it.Node().place = 0
	return it
}

// leastShrunk is the shortest queue whose memory is given back.
const leastShrunk = 1024

// put queues an item for due. A queued item moves only to an earlier time. The item must not have been removed.
func (q *queue) put(it Item, due int64) {
	switch n := it.Node(); {
	case n.out:
		if n.place != gone && (!n.wanted || due < n.due) {
			n.due, n.wanted = due, true
		}
	case n.place == 0:
		n.due = due
		heap.Push(q, it)
	case due < n.due:
		n.due = due
		heap.Fix(q, int(n.place)-1)
	}
}

// takeOut takes an item out of the queue until putBack. It returns false if the item is out or gone.
func (q *queue) takeOut(it Item) bool {
	n := it.Node()
	if n.out || n.place == gone {
		return false
	}
	if n.place > 0 {
		heap.Remove(q, int(n.place)-1)
	}
	n.out, n.wanted = true, false
	return true
}

// putBack ends takeOut. It reports whether the item is queued now, because put was called meanwhile.
func (q *queue) putBack(it Item) bool {
	n := it.Node()
	back := n.out && n.wanted && n.place != gone
	if n.out, n.wanted = false, false; back {
		heap.Push(q, it)
	}
	return back
}

// remove takes an item out of the queue for good.
func (q *queue) remove(it Item) {
	n := it.Node()
	if n.place > 0 {
		heap.Remove(q, int(n.place)-1)
	}
	n.place = gone
}

func (q *queue) clear() {
	for _, it := range *q {
		it.Node().place = 0
	}
	*q = nil
}

// take takes out up to most items that are due at then or before. With one, they are all of the tag of the first.
func (q *queue) take(then int64, most int, one bool) []Item {
	out := make([]Item, 0, min(len(*q), most))
	var others []Item
	for len(*q) > 0 && len(out) < most && len(others) < mostOthers && (*q)[0].Node().due <= then {
		it := heap.Pop(q).(Item)
		if one && len(out) > 0 && it.Node().Tag != out[0].Node().Tag {
			others = append(others, it)
			continue
		}
		out = append(out, it)
		it.Node().out = true
	}
	for _, it := range others {
		heap.Push(q, it)
	}
	return out
}

// mostOthers is the most items of other tags that take passes over.
const mostOthers = 1024
