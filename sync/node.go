package ratesync

import (
	"container/heap"
	"time"

	"github.com/hybridlimit/hybridlimit/lua"
)

// Item has something to tell Redis. The engine calls its methods from a
// lane's goroutine, one at a time, and holds no lock meanwhile. They may call
// Enqueue, but neither Flush nor Close, which wait for that goroutine.
type Item interface {
	// Freeze returns the op to send, or false when nothing is left to say.
	// After true it is not called again before Settle or Drop.
	Freeze(now time.Time) (lua.Op, bool)
	// Settle brings the answer to the frozen op.
	Settle(Answer)
	// Drop says that the frozen op was given up: Redis refused it for good,
	// or the engine was closed before an answer came.
	Drop()
}

// Answer is what Redis said to one op.
type Answer struct {
	lua.Answer
	RedisNow int64     // µs of Redis time
	Sent     time.Time // when the batch was first sent: leases count from here
	Received time.Time // when the answer came
}

// Node is an Item's place in its lane. The zero Node with Item set is ready
// for Engine.Enqueue; its other fields belong to the lane.
type Node struct {
	Item Item // whose place it is

	due   time.Time
	place int // index in the queue plus one; 0: not queued
}

// queue is a heap of nodes by due time.
type queue []*Node

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}

// Push is for package heap.
func (q *queue) Push(x any) {
	n := x.(*Node)
	n.place = len(*q) + 1
	*q = append(*q, n)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	old := *q
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	n.place = 0
	return n
}

// put queues n for due, or moves it forward; later than it is does nothing.
func (q *queue) put(n *Node, due time.Time) {
	switch {
	case n.place == 0:
		n.due = due
		heap.Push(q, n)
	case due.Before(n.due):
		n.due = due
		heap.Fix(q, n.place-1)
	}
}

// take removes up to most nodes that are due by then.
func (q *queue) take(then time.Time, most int) []*Node {
	out := make([]*Node, 0, min(len(*q), most))
	for len(*q) > 0 && len(out) < most && !(*q)[0].due.After(then) {
		out = append(out, heap.Pop(q).(*Node))
	}
	return out
}
