package keys

import (
	"hash/maphash"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/shards"
)

// Store holds a limiter's entries in shards. A table per shard finds entries without a lock. An LRU, under the shard's
// lock, chooses the entry to evict. Uses by the fast path are noted there only on the slow path. Every key in use takes
// the slow path before many other keys have come: see turnover.
type Store struct {
	seed      maphash.Seed
	mask      uint64
	shards    []shard
	Keys      atomic.Int64
	Evicted   atomic.Uint64
	Refused   atomic.Uint64 // insertions refused because no entry could be evicted
	lastEvict atomic.Int64  // ns on the hub's clock; negative: never
	turnover  turnover
}

type shard struct {
	table atomic.Pointer[table]
	_     [56]byte // keeps written fields off the cache line of the readers
	mu    sync.Mutex
	lru   *simplelru.LRU[*Entry, struct{}]
	max   int
	_     [40]byte
}

const (
	evictTries = 8 // entries that are checked for one that may go
)

// NewStore returns a store for at most maxKeys keys. void must end all budgets. It is called under a shard's lock.
func NewStore(maxKeys int, void func()) *Store {
	n := shards.Count(maxKeys, runtime.GOMAXPROCS(0))
	s := &Store{
		seed: maphash.MakeSeed(), mask: uint64(n - 1), shards: make([]shard, n),
		turnover: turnover{step: max(1, int64(maxKeys/64)), void: void},
	}
	s.lastEvict.Store(-1)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.max = (maxKeys + i) / n                                  // these add up to maxKeys
		sh.lru, _ = simplelru.NewLRU[*Entry, struct{}](sh.max, nil) // the error is for a size below 1
		t := make(table, minTable)
		sh.table.Store(&t)
	}
	return s
}

// Get finds a key without a lock. It can miss a key that is there; lookup does not.
func (s *Store) Get(key string) *Entry {
	hash := maphash.String(s.seed, key)
	return s.shards[hash&s.mask].table.Load().find(hash, key)
}

// lock locks the shard of a key, and returns the key's entry or nil.
func (s *Store) lock(key string) (sh *shard, hash uint64, have *Entry) {
	hash = maphash.String(s.seed, key)
	sh = &s.shards[hash&s.mask]
	sh.mu.Lock()
	return sh, hash, sh.table.Load().find(hash, key)
}

// Peek finds a key and does not note its use.
func (s *Store) Peek(key string) *Entry {
	sh, _, have := s.lock(key)
	defer sh.mu.Unlock()
	return have
}

// Lookup finds a key and notes its use.
func (s *Store) Lookup(key string) *Entry {
	sh, _, have := s.lock(key)
	defer sh.mu.Unlock()
	sh.lru.Get(have)
	return have
}

// Add adds an entry unless its key is there already. If the shard is full, it evicts the entry whose noted use is the
// oldest. If that may not go, it counts as used now, and the next one is tried. Add returns the entry that the key has
// now, or nil when no entry could go. owing lists the entries that must pay before they can go.
func (s *Store) Add(e *Entry, now int64) (got *Entry, owing []*Entry) {
	sh, hash, have := s.lock(e.Name)
	defer sh.mu.Unlock()
	if have != nil {
		sh.lru.Get(have)
		return have, nil
	}
	t := *sh.table.Load()
	s.turnover.came(now)
	for sh.lru.Len() == sh.max {
		if len(owing) == evictTries {
			s.Refused.Add(1)
			return nil, owing
		}
		old, _, _ := sh.lru.GetOldest()
		if !old.tryEvict(now) {
			owing = append(owing, old)
			sh.lru.Get(old)
			continue
		}
		s.remove(sh, maphash.String(s.seed, old.Name), old, now)
		s.Evicted.Add(1)
	}
	if n := sh.lru.Len(); n == len(t) {
		t = t.grown(2*n, s.seed)
		sh.table.Store(&t)
	}
	sh.lru.Add(e, struct{}{})
	t.put(hash, e)
	s.Keys.Add(1)
	return e, owing
}

// evict removes an entry, if it may go, and reports whether it did. It calls then before others see that it has gone.
func (s *Store) evict(e *Entry, now int64, then func()) bool {
	sh, hash, have := s.lock(e.Name)
	defer sh.mu.Unlock()
	if have != e || !e.tryEvict(now) {
		return false
	}
	then()
	s.remove(sh, hash, e, now)
	return true
}

// remove removes an entry that tryEvict has marked. Call it under the lock of the shard.
func (s *Store) remove(sh *shard, hash uint64, e *Entry, now int64) {
	sh.lru.Remove(e)
	sh.table.Load().remove(hash, e)
	s.Keys.Add(-1)
	s.lastEvict.Store(now)
}

// Each calls f for every entry, outside the shards' locks.
func (s *Store) Each(f func(*Entry)) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		entries := sh.lru.Keys()
		sh.mu.Unlock()
		for _, e := range entries {
			f(e)
		}
	}
}

// Sweep calls f for the entries that it meets, without a lock: for each one of which the chain stays as it is
// meanwhile.
func (s *Store) Sweep(f func(*Entry)) {
	for i := range s.shards {
		for t, j := *s.shards[i].table.Load(), 0; j < len(t); j++ {
			for e := t[j].Load(); e != nil; e = e.chain.Load() {
				f(e)
			}
		}
	}
}

// turnover measures how fast keys come. The fast path's use of a key is noted only when its budget ends. So the order
// of eviction misses the uses of a budget while it is valid. A budget that is valid while one step of keys comes makes
// the order wrong by that step. It counts from the first key: the first evictions need the order of the uses before
// them.
type turnover struct {
	step  int64  // a 64th of the keys
	void  func() // ends all budgets
	count atomic.Int64
	mark  atomic.Int64 // ns: end of the last step; 0: none began
	took  atomic.Int64 // ns: duration of the last step; 0: none has ended
}

// came notes that a key came. If a step was shorter than the longest validity of a budget, and was the first or less
// than half as long as the one before, came ends all budgets.
func (t *turnover) came(now int64) {
	switch n := t.count.Add(1); {
	case n == 1:
		t.mark.Store(max(1, now))
	case n%t.step == 0:
		took := max(1, now-t.mark.Swap(max(1, now)))
		if before := t.took.Swap(took); took < int64(clock.Span*Tick) && (before == 0 || took < before/2) {
			t.void()
		}
	}
}

// notedBy returns the time, in ticks, by which a use of a key at now should be noted. It is now if a step is shorter
// than a tick, which is the least validity of a budget.
func (t *turnover) notedBy(now int64) int64 {
	took, mark := t.took.Load(), t.mark.Load()
	if took == 0 {
		return math.MaxInt64
	}
	took = max(took, now-mark) // the current step takes at least now-mark
	return now + took - took%int64(Tick)
}
