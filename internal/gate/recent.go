package gate

import (
	"container/list"
	"sync"
)

// Recent is a cache of values by key, such as the servers of a client. If a new key finds it full, the least recently used one is
// removed. It is safe for concurrent use; the values guard themselves.
type Recent[T any] struct {
	most  int
	fresh func() T

	mu    sync.Mutex
	known map[string]*list.Element
	order list.List // of *recent[T], the most recently used first
}

// recent is a key and its value.
type recent[T any] struct {
	key   string
	value T
}

// NewRecent returns a cache of at most the given number of keys, at least 1. fresh makes the value of a new key.
func NewRecent[T any](most int, fresh func() T) *Recent[T] {
	return &Recent[T]{most: most, fresh: fresh, known: map[string]*list.Element{}}
}

// Of returns the value of a key.
func (r *Recent[T]) Of(key string) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.known[key]; ok {
		r.order.MoveToFront(e)
		return e.Value.(*recent[T]).value
	}
	if len(r.known) >= r.most {
		delete(r.known, r.order.Remove(r.order.Back()).(*recent[T]).key)
	}
	made := &recent[T]{key, r.fresh()}
	r.known[key] = r.order.PushFront(made)
	return made.value
}
