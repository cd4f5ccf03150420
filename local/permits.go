package local

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// permitShard is a part of the keys of a ConcurrencyLimiter under one lock.
type permitShard struct {
	mu     sync.Mutex
	closed bool
	most   int64                 // permits of a key without a limit of its own
	byHash map[uint64]*permitKey // by the hash of the key; of equal hashes, the first
	spare  *permitKey            // without a name, for new keys
	spares int
	keys   *atomic.Int64 // in all shards
	room   int64         // the largest number of keys in all shards

	_ [64]byte // keeps neighbours' locks off this cache line
}

// maxSpares bounds the memory that a shard keeps for keys without running calls.
const maxSpares = 64

// permitKey is a key with running or waiting calls.
type permitKey struct {
	shard   *permitShard
	hash    uint64
	name    []byte     // the key; the buffer is kept for the next one
	next    *permitKey // with an equal hash, or the next spare
	own     int64      // permits of the key's own limit, or ofShard
	running int64      // permits that are held; above the limit after the limit fell

	queue *list.List // of *waiter, in the order in which they came; nil before the first
}

// ofShard is the permitKey.own of a key without a limit of its own.
const ofShard int64 = -1

// waiter is a call that waits for permits. The lock of its shard guards all fields but ready, which is closed when the
// state changes.
type waiter struct {
	n          int64
	ready      chan struct{}
	state      waiterState
	most, free int64         // when the state changed: the limit, and the permits that are then free
	place      *list.Element // in the queue
}

type waiterState uint8

const (
	waits   waiterState = iota
	served              // it holds its permits
	refused             // it needs more than the limit
	shut                // the limiter is closed
)

func (s *permitShard) open(most int64, keys *atomic.Int64, room int64) {
	s.most, s.byHash, s.keys, s.room = most, map[uint64]*permitKey{}, keys, room
}

// limit returns the number of permits of a key.
func (s *permitShard) limit(own int64) int64 {
	if own == ofShard {
		return s.most
	}
	return own
}

// permitPlace is a key in its shard, which is locked, for one call.
type permitPlace struct {
	*permitShard

	hash uint64
	own  int64      // permits of the key's own limit, or ofShard
	held *permitKey // nil: no call of the key runs or waits
}

// free returns the number of permits of the key, how many of them are free, and whether a call of n gets them at once.
func (p *permitPlace) free(n int64) (most, free int64, now bool) {
	most = p.limit(p.own)
	if p.held == nil {
		return most, most, n <= most
	}
	free = most - p.held.running
	return most, free, n <= free && p.held.first() == nil
}

func (s *permitShard) find(hash uint64, key string) *permitKey {
	c := s.byHash[hash]
	for c != nil && string(c.name) != key {
		c = c.next
	}
	return c
}

// enter makes the entry of a key that has none. It is nil if there are too many keys.
func (s *permitShard) enter(hash uint64, key string, own int64) *permitKey {
	if s.keys.Add(1) > s.room {
		s.keys.Add(-1)
		return nil
	}
	c := s.spare
	if c == nil {
		c = &permitKey{shard: s}
	} else {
		s.spare = c.next
		s.spares--
	}
	c.hash, c.name, c.own, c.next = hash, append(c.name[:0], key...), own, s.byHash[hash]
	s.byHash[hash] = c
	return c
}

// settle drops a key without running and waiting calls.
func (s *permitShard) settle(c *permitKey) {
	if c.running > 0 || c.first() != nil {
		return
	}
	if head := s.byHash[c.hash]; head != c {
		for head.next != c {
			head = head.next
		}
		head.next = c.next
	} else if c.next != nil {
		s.byHash[c.hash] = c.next
	} else {
		delete(s.byHash, c.hash)
	}
	s.keys.Add(-1)
	c.next = nil
	if s.spares < maxSpares {
		c.next, s.spare = s.spare, c
		s.spares++
	}
}

// serve admits the calls that wait, in their order, as far as there are free permits. It refuses those that need more
// than the limit.
func (s *permitShard) serve(c *permitKey) {
	most := s.limit(c.own)
	for w := c.first(); w != nil && (w.n > most || w.n <= most-c.running); w = c.first() {
		state := refused
		if w.n <= most {
			state = served
			c.running += w.n
		}
		c.end(w, state, most)
	}
}

// change sets the limit of the keys without one of their own.
func (s *permitShard) change(most int64) (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.most = most
	s.each(s.serve)
	return true
}

func (s *permitShard) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.each(func(c *permitKey) {
		for w := c.first(); w != nil; w = c.first() {
			c.end(w, shut, s.limit(c.own))
		}
	})
}

// each calls f for each key, and drops the key if no call of it is left.
func (s *permitShard) each(f func(*permitKey)) {
	for _, c := range s.byHash {
		for c != nil {
			next := c.next
			f(c)
			s.settle(c)
			c = next
		}
	}
}

// ReleasePermits implements hybridlimit.PermitHolder.
func (c *permitKey) ReleasePermits(n int64) {
	s := c.shard
	s.mu.Lock()
	c.running -= n
	s.serve(c)
	s.settle(c)
	s.mu.Unlock()
}

// first returns the call that has waited longest, or nil.
func (c *permitKey) first() *waiter {
	if c.queue == nil || c.queue.Len() == 0 {
		return nil
	}
	return c.queue.Front().Value.(*waiter)
}

// push adds a call of n permits at the end of the queue.
func (c *permitKey) push(n int64) *waiter {
	if c.queue == nil {
		c.queue = list.New()
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	w.place = c.queue.PushBack(w)
	return w
}

// end takes a call out of the queue and wakes it.
func (c *permitKey) end(w *waiter, state waiterState, most int64) {
	c.queue.Remove(w.place)
	w.state, w.most, w.free = state, most, most-c.running
	close(w.ready)
}
