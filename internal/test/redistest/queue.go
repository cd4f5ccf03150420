package redistest

import "sync"

// queue is an unbounded FIFO. It is not a buffered channel, because a full channel would stop the reader in front of
// it. A client that writes a whole pipeline before it reads could then never finish. The queue waits on a sync.Cond,
// which a synctest bubble counts as blocked, unlike a mutex.
type queue[T any] struct {
	mu      sync.Mutex
	changed sync.Cond
	items   []T
	stopped bool
}

func newQueue[T any]() *queue[T] {
	q := new(queue[T])
	q.changed.L = &q.mu
	return q
}

func (q *queue[T]) push(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, item)
	q.changed.Signal()
}

// pop waits for an item. It returns false after stop, even if items are left.
func (q *queue[T]) pop() (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.stopped {
		q.changed.Wait()
	}
	if q.stopped {
		return item, false
	}
	item = q.items[0]
	clear(q.items[:1]) // frees the bytes, because the array stays in memory
	q.items = q.items[1:]
	return item, true
}

func (q *queue[T]) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.changed.Broadcast()
}
