package gate

import lru "github.com/hashicorp/golang-lru/v2"

// Recent is an LRU of values by key, such as the servers of a client. It is safe for concurrent use; the values guard
// themselves.
type Recent[T any] struct {
	lru   *lru.Cache[string, T]
	fresh func() T
}

// NewRecent returns an LRU of at most the given number of keys, at least 1. fresh makes the value of a new key.
func NewRecent[T any](most int, fresh func() T) *Recent[T] {
	c, _ := lru.New[string, T](most) // the error is for a size below 1
	return &Recent[T]{c, fresh}
}

// Of returns the value of a key.
func (r *Recent[T]) Of(key string) T {
	if v, ok := r.lru.Get(key); ok {
		return v
	}
	made := r.fresh()
	if v, ok, _ := r.lru.PeekOrAdd(key, made); ok { // another goroutine was faster
		return v
	}
	return made
}
