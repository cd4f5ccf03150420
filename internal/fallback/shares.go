package fallback

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// common is the number of cells of common shares, for keys for which the LRU has no room.
const common = 4096

// sizes is the largest number of shares in a cell. Keys of one size have one of them together: a key with a slow limit
// would get the units back at the speed of a fast one otherwise.
const sizes = 8

// linger is the time (ns) for which the shares stay after all are full.
const linger = 1e9

// looked is the number of the oldest shares of which one that is full again makes room for a new key.
const looked = 8

// Shares has the shares of the keys of a limiter. It is safe for concurrent use. It needs no memory while Redis
// answers.
//
// A caller who makes up keys cannot drop the share of another key, because only full shares are dropped. He can use up
// the common shares. Outsiders cannot compute the common share of a key, because the hash is seeded.
type Shares struct {
	keys  int
	until atomic.Int64 // ns; all shares are full from this time; 0: there are none

	mu     sync.Mutex
	lru    *simplelru.LRU[string, *share]
	common map[uint64][]*share // the cells
	seed   maphash.Seed
}

// New returns shares for at most so many keys, and the common ones.
func New(keys int) *Shares { return &Shares{keys: max(1, keys), seed: maphash.MakeSeed()} }

// of returns the share of a key, made for the size s. add is false for a look, which changes nothing: it returns nil if
// there is no share. Call it under mu.
func (h *Shares) of(key string, s *Size, add bool, now int64) *share {
	if h.lru == nil {
		if !add {
			return nil
		}
		h.lru, _ = simplelru.NewLRU[string, *share](h.keys, nil) // it fails for a size below 1
		h.common = map[uint64][]*share{}
	}
	one, ok := h.lru.Get(key)
	switch {
	case ok:
	case !add:
		return h.inCommon(key, s, false, now)
	case h.room(now):
		one = new(share)
		if used := h.inCommon(key, s, false, now); used != nil { // perhaps by this key, before there was room
			one.fit(s, now)
			one.lower(used.look(s, now), now)
		}
		h.lru.Add(strings.Clone(key), one)
	default:
		one = h.inCommon(key, s, true, now)
	}
	if add {
		one.fit(s, now)
	}
	return one
}

// inCommon is of for a key that the LRU does not have. The share of a new size begins with the smallest part of the
// others of its cell, so that another limit gives no key its units anew. If the cell has no room for it, it is empty,
// and not kept.
func (h *Shares) inCommon(key string, s *Size, add bool, now int64) *share {
	i := maphash.String(h.seed, key) % common
	cell, part := h.common[i], 1.0
	for _, one := range cell {
		if one.size.like(s) {
			return one
		}
		part = min(part, max(0, one.look(&one.size, now))/float64(one.size.Burst))
	}
	if len(cell) == 0 && !add {
		return nil
	}
	one := new(share)
	one.fit(s, now)
	one.lower(part*float64(s.Burst), now)
	if !add {
		return one
	}
	full := slices.IndexFunc(cell, func(one *share) bool { return one.fullAt(now) <= now })
	switch {
	case len(cell) < sizes:
		h.common[i] = append(cell, one)
	case full >= 0:
		cell[full] = one
	default:
		one.lower(0, now)
	}
	return one
}

// room reports whether the LRU has room for one more key. It drops a share that is full again for it.
func (h *Shares) room(now int64) bool {
	if h.lru.Len() < h.keys {
		return true
	}
	for range looked {
		key, one, ok := h.lru.GetOldest()
		if !ok || one.fullAt(now) <= now {
			h.lru.Remove(key)
			return true
		}
		h.lru.Get(key) // it is the newest now, so that the next one is looked at
	}
	return false
}

// Left returns the units that a key has left.
func (h *Shares) Left(key string, s Size, now int64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.of(key, &s, false, now); one != nil {
		return one.look(&s, now)
	}
	return float64(s.Burst)
}

// Take takes n units of a key if it leaves s.Floor. It reports whether it did.
func (h *Shares) Take(key string, s Size, n, now int64) bool {
	if n > s.Burst-s.Floor {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(key, &s, true, now)
	ok := one.take(n, now)
	h.rise(one.fullAt(now))
	return ok
}

// Put returns n units that were taken at this instant.
func (h *Shares) Put(key string, s Size, n, now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.of(key, &s, false, now); one != nil {
		one.fit(&s, now)
		one.put(n, now)
	}
}

// Lower lowers the share of a key to a level, if it has more.
func (h *Shares) Lower(key string, s Size, level float64, now int64) {
	if level >= float64(s.Burst) {
		return // a full share needs no memory
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(key, &s, true, now)
	one.lower(level, now)
	h.rise(one.fullAt(now))
}

// Debit takes n units of a key that were used without asking.
func (h *Shares) Debit(key string, s Size, n, now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(key, &s, true, now)
	one.debit(n, now)
	h.rise(one.fullAt(now))
}

// rise notes that a share is full again only at a time.
func (h *Shares) rise(full int64) { h.until.Store(max(h.until.Load(), full)) }

// Wait returns the ns until Take of n units may succeed; negative: never.
func (h *Shares) Wait(key string, s Size, n, now int64) int64 {
	if !s.Counts() {
		return -1
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(key, &s, false, now)
	if one == nil {
		one = new(share)
	}
	one.fit(&s, now)
	return one.wait(n, now)
}

// Release drops all shares when they have been full for a while. The hub calls it now and then.
func (h *Shares) Release(now int64) {
	until := h.until.Load()
	if until == 0 || now < until+linger {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now >= h.until.Load()+linger {
		h.lru, h.common = nil, nil
		h.until.Store(0)
	}
}

// Copy returns a copy of the share of a key. What is done to it changes nothing here.
func (h *Shares) Copy(key string, s Size, now int64) Share {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := New(1)
	if one := h.of(key, &s, false, now); one != nil {
		own := &share{size: one.size, counts: one.counts}
		if one.bucket != nil {
			own.renew(&one.size, now)
			own.lower(one.left(now), now)
		}
		c.lru, _ = simplelru.NewLRU[string, *share](1, nil)
		c.lru.Add(key, own)
	}
	return OfKey{c, key}
}

// OfKey is the share of one key.
type OfKey struct {
	Of  *Shares // in which the share is
	Key string  // whose share it is
}

// Left implements Share.
func (k OfKey) Left(s Size, now int64) float64 { return k.Of.Left(k.Key, s, now) }

// Take implements Share.
func (k OfKey) Take(s Size, n, now int64) bool { return k.Of.Take(k.Key, s, n, now) }

// Put implements Share.
func (k OfKey) Put(s Size, n, now int64) { k.Of.Put(k.Key, s, n, now) }

// Wait implements Share.
func (k OfKey) Wait(s Size, n, now int64) int64 { return k.Of.Wait(k.Key, s, n, now) }

// Lower implements Share.
func (k OfKey) Lower(s Size, level float64, now int64) { k.Of.Lower(k.Key, s, level, now) }

// Debit implements Share.
func (k OfKey) Debit(s Size, n, now int64) { k.Of.Debit(k.Key, s, n, now) }

// Len returns the number of shares.
func (h *Shares) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lru == nil {
		return 0
	}
	n := h.lru.Len()
	for _, cell := range h.common {
		n += len(cell)
	}
	return n
}
