package local

import (
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// sweepKeys is the number of keys that one call drops if they are idle. With more than one, a shard empties faster than
// new keys fill it. It is small, so that no call pays for many.
const sweepKeys = 2

// shard is a part of the keys under one lock. Tokens are taken under the lock too, so that no key is evicted while a
// caller takes from it: those units would be lost.
type shard struct {
	mu      sync.Mutex
	closed  bool
	keys    *simplelru.LRU[string, *entry]
	base    *plan         // of keys without a limit of their own
	counted *plan         // the last base that was not static
	room    int           // the largest number of keys
	now     time.Duration // latest time of any call, since the limiter's start
	sweepAt time.Duration // no key is idle before this
	lost    uint64        // keys evicted before they were full again

	_ [64]byte // keeps neighbours' locks off this cache line
}

func (s *shard) open(room int, base *plan) {
	s.room, s.base, s.sweepAt = room, base, base.idle
	s.keys = newKeys(room)
	if !static(base.limit.Algorithm) {
		s.counted = base
	}
}

func newKeys(room int) *simplelru.LRU[string, *entry] {
	keys, _ := simplelru.NewLRU[string, *entry](room, nil) // the error is for a room below 1
	return keys
}

// tick moves the shard's clock to now. It returns the shard's time, and the time by which now is behind it.
//
// Callers read the clock before they take the lock, so their times arrive out of order, by milliseconds if a caller is
// preempted in between. A state must not go back in time: it would refill the time between the two again.
func (s *shard) tick(now time.Duration) (at, behind time.Duration) {
	if now < s.now {
		return s.now, s.now - now
	}
	s.now = now
	return now, 0
}

// place is a key in its shard, which is locked.
type place struct {
	*shard
	key   string
	entry *entry // nil: the key is not held
	own   *plan  // from LimitFor, for a key that is not held
	asks  refresh.Deadline
	peeks bool // the call is no use of the key
}

// look finds the entry of the key. Unless the call only peeks, the key is now the last one that the LRU evicts.
func (at *place) look() {
	if at.peeks {
		at.entry, _ = at.keys.Peek(at.key)
		return
	}
	at.entry, _ = at.keys.Get(at.key)
}

// find returns the entry of the key and marks it as used now. For a key without one, it makes an unused entry. p is the
// plan of the call.
func (at *place) find(p *plan) *entry {
	s := at.shard
	if at.entry == nil {
		s.enter(at, p)
	}
	at.entry.seen = s.now
	if s.now > s.sweepAt {
		s.sweep()
	}
	return at.entry
}

// enter makes the entry of a key, and evicts the one that was used least recently if the shard is full.
func (s *shard) enter(at *place, p *plan) {
	if s.keys.Len() == s.room {
		if _, old, _ := s.keys.GetOldest(); !old.fresh(s.now) { // before the removal, which also waits for memory
			s.lost++
		}
		s.keys.RemoveOldest()
	}
	at.entry = newEntry(p, at.own)
	at.entry.asks = at.asks
	s.keys.Add(strings.Clone(at.key), at.entry)
}

// glance returns the entry of the key without marking it as used. For a key without one, it returns an unused entry
// that the shard does not hold.
func (at *place) glance(p *plan) *entry {
	if at.entry != nil {
		return at.entry
	}
	return newEntry(p, at.own)
}

// sweep drops up to two keys without a call for longer than idle, which are the ones that the LRU evicts first. Exactly
// idle is not enough: a bucket may lack less than a nanosecond's refill. A key that is not full yet goes to the other
// end of the LRU, as if it had been used now. The key of this call was used now, so the shard is not empty.
func (s *shard) sweep() {
	idle := s.base.idle
	for range sweepKeys {
		key, e, _ := s.keys.GetOldest()
		if e.seen > s.now-idle-1 {
			s.sweepAt = e.seen + min(idle, hybridlimit.Never-e.seen)
			return
		}
		if e.fresh(s.now) {
			s.keys.Remove(key)
			continue
		}
		s.keys.Get(key)
		e.seen = s.now
	}
}
