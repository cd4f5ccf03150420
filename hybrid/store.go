package hybrid

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit/internal/shards"
)

// store holds a limiter's entries in shards. A table per shard finds entries without a lock. An LRU, under the shard's
// lock, chooses the entry to evict. Uses by the fast path are noted there only on the slow path. Every key in use takes
// the slow path before many other keys have come: see turnover.
type store struct {
	seed      maphash.Seed
	mask      uint64
	shards    []shard
	keys      atomic.Int64
	evicted   atomic.Uint64
	refused   atomic.Uint64 // insertions refused because no entry could be evicted
	lastEvict atomic.Int64  // ns on the hub's clock; negative: never
	turnover  turnover
}

type shard struct {
	table atomic.Pointer[table]
	_     [56]byte // keeps written fields off the cache line of the readers
	mu    sync.Mutex
	lru   *simplelru.LRU[*entry, struct{}]
	max   int
	_     [40]byte
}

const (
	evictTries = 8 // entries that are checked for one that may go
)

// newStore returns a store for at most maxKeys keys. void must end all budgets. It is called under a shard's lock.
func newStore(maxKeys int, void func()) *store {
	n := shards.Count(maxKeys, runtime.GOMAXPROCS(0))
	s := &store{
		seed: maphash.MakeSeed(), mask: uint64(n - 1), shards: make([]shard, n),
		turnover: turnover{step: max(1, int64(maxKeys/64)), void: void},
	}
	s.lastEvict.Store(-1)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.max = (maxKeys + i) / n                                  // these add up to maxKeys
		sh.lru, _ = simplelru.NewLRU[*entry, struct{}](sh.max, nil) // the error is for a size below 1
		t := make(table, minTable)
		sh.table.Store(&t)
	}
	return s
}

// get finds a key without a lock. It can miss a key that is there; lookup does not.
func (s *store) get(key string) *entry {
	hash := maphash.String(s.seed, key)
	return s.shards[hash&s.mask].table.Load().find(hash, key)
}

// lock locks the shard of a key, and returns the key's entry or nil.
func (s *store) lock(key string) (sh *shard, hash uint64, have *entry) {
	hash = maphash.String(s.seed, key)
	sh = &s.shards[hash&s.mask]
	sh.mu.Lock()
	return sh, hash, sh.table.Load().find(hash, key)
}

// peek finds a key and does not note its use.
func (s *store) peek(key string) *entry {
	sh, _, have := s.lock(key)
	defer sh.mu.Unlock()
	return have
}

// lookup finds a key and notes its use.
func (s *store) lookup(key string) *entry {
	sh, _, have := s.lock(key)
	defer sh.mu.Unlock()
	sh.lru.Get(have)
	return have
}

// add adds an entry unless its key is there already. If the shard is full, it evicts the entry whose noted use is the
// oldest. If that may not go, it counts as used now, and the next one is tried. add returns the entry that the key has now,
// or nil when no entry could go. owing lists the entries that must pay before they can go.
func (s *store) add(e *entry, now int64) (got *entry, owing []*entry) {
	sh, hash, have := s.lock(e.name)
	defer sh.mu.Unlock()
	if have != nil {
		sh.lru.Get(have)
		return have, nil
	}
	t := *sh.table.Load()
	s.turnover.came(now)
	for sh.lru.Len() == sh.max {
		if len(owing) == evictTries {
			s.refused.Add(1)
			return nil, owing
		}
		old, _, _ := sh.lru.GetOldest()
		if !old.tryEvict(now) {
			owing = append(owing, old)
			sh.lru.Get(old)
			continue
		}
		sh.lru.Remove(old)
		t.remove(maphash.String(s.seed, old.name), old)
		s.keys.Add(-1)
		s.evicted.Add(1)
		s.lastEvict.Store(now)
	}
	if n := sh.lru.Len(); n == len(t) {
		t = t.grown(2*n, s.seed)
		sh.table.Store(&t)
	}
	sh.lru.Add(e, struct{}{})
	t.put(hash, e)
	s.keys.Add(1)
	return e, owing
}

// each calls f for every entry, outside the shards' locks.
func (s *store) each(f func(*entry)) {
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

// sweep calls f for the entries that it meets, without a lock: for each one of which the chain stays as it is meanwhile.
func (s *store) sweep(f func(*entry)) {
	for i := range s.shards {
		for t, j := *s.shards[i].table.Load(), 0; j < len(t); j++ {
			for e := t[j].Load(); e != nil; e = e.chain.Load() {
				f(e)
			}
		}
	}
}
