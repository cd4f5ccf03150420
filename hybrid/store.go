package hybrid

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// store holds a limiter's entries in shards. A table per shard finds entries without a lock. A ring, under the shard's
// lock, chooses the entry to evict. Uses by the fast path are noted there only on the slow path. Every key in use takes
// the slow path before many other keys have come: see turnover.
type store struct {
	seed   maphash.Seed
	mask   uint64
	shards []shard

	evicted   atomic.Uint64
	refused   atomic.Uint64 // insertions refused because no entry could be evicted
	lastEvict atomic.Int64  // ns on the hub's clock; negative: never
	turnover  turnover
}

type shard struct {
	table atomic.Pointer[table]
	_     [56]byte // keeps written fields off the cache line of the readers

	mu   sync.Mutex
	ring ring
	max  int
	_    [8]byte
}

// perShard is the least number of keys per shard: a small bound split over many shards would evict unevenly.
const perShard = 1024

// newStore returns a store for at most maxKeys keys. void must end all budgets. It is called under a shard's lock.
func newStore(maxKeys int, void func()) *store {
	n := 1
	for n < 4*runtime.GOMAXPROCS(0) && n < 256 && maxKeys/(2*n) >= perShard {
		n *= 2
	}
	s := &store{
		seed: maphash.MakeSeed(), mask: uint64(n - 1), shards: make([]shard, n),
		turnover: turnover{step: max(1, int64(maxKeys/turnoverParts)), void: void},
	}
	s.lastEvict.Store(-1)
	for i := range s.shards {
		size := maxKeys / n
		if i < maxKeys%n {
			size++
		}
		s.shards[i].max = size
		t := newTable(minTable)
		s.shards[i].table.Store(t)
		s.shards[i].ring.grow(min(t.room(), size))
	}
	return s
}

// hash returns the hash of a key.
func (s *store) hash(key string) uint64 { return maphash.String(s.seed, key) }

// get finds a key without a lock. It can miss a key that is there; lookup does not.
func (s *store) get(key string) *entry {
	hash := s.hash(key)
	return s.shards[hash&s.mask].table.Load().find(hash, key)
}

// lookup finds a key and notes its use.
func (s *store) lookup(key string) *entry {
	hash := s.hash(key)
	sh := &s.shards[hash&s.mask]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.use(hash, key)
}

// peek finds a key and does not note its use.
func (s *store) peek(key string) *entry {
	hash := s.hash(key)
	sh := &s.shards[hash&s.mask]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.table.Load().find(hash, key)
}

// use is lookup under the lock.
func (sh *shard) use(hash uint64, key string) *entry {
	e := sh.table.Load().find(hash, key)
	if e != nil {
		sh.ring.use(e)
	}
	return e
}

// evictTries is the number of entries that are checked for one that owes nothing.
const evictTries = 8

// add adds an entry unless its key is there already. If the shard is full, it evicts an entry that may go. It returns the
// entry that the key has now, or nil when no entry could go. owing lists the entries that must pay before they can go.
func (s *store) add(e *entry, now int64) (got *entry, owing []*entry) {
	hash := s.hash(e.name)
	sh := &s.shards[hash&s.mask]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if have := sh.use(hash, e.name); have != nil {
		return have, nil
	}
	if len(sh.ring.entries) >= sh.max-sh.max/16 {
		s.turnover.came(now)
	}
	if len(sh.ring.entries) < sh.max {
		sh.grow()
		sh.ring.add(e)
		sh.table.Load().put(hash, e)
		return e, nil
	}
	for range evictTries {
		place := sh.ring.victim()
		old := sh.ring.entries[place]
		if old.tryEvict(now) {
			sh.ring.replace(place, e)
			sh.table.Load().remove(s.hash(old.name), old)
			sh.table.Load().put(hash, e)
			s.evicted.Add(1)
			s.lastEvict.Store(now)
			return e, owing
		}
		owing = append(owing, old)
		sh.ring.use(old)
	}
	s.refused.Add(1)
	return nil, owing
}

// grow makes room for another entry. At its final size the table is a third larger than its entries, so that one in four
// slots is free. The ring has room for as many entries as the table.
func (sh *shard) grow() {
	if t := sh.table.Load(); t.full() {
		t = t.grown(min(len(t.slots)+len(t.slots)/4, max(minTable, sh.max+sh.max/3+2)))
		sh.table.Store(t)
		sh.ring.grow(min(t.room(), sh.max))
	}
}

// inTheWay returns the entries that add would check for eviction if this key came in now. It returns none if there is
// room or the key is there already.
func (s *store) inTheWay(key string) []*entry {
	hash := s.hash(key)
	sh := &s.shards[hash&s.mask]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.ring.entries) < sh.max || sh.table.Load().find(hash, key) != nil {
		return nil
	}
	return sh.ring.victims(evictTries)
}

// len returns the number of keys.
func (s *store) len() int {
	total := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		total += len(sh.ring.entries)
		sh.mu.Unlock()
	}
	return total
}

// each calls f for every entry, outside the shards' locks.
func (s *store) each(f func(*entry)) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		entries := slices.Clone(sh.ring.entries)
		sh.mu.Unlock()
		for _, e := range entries {
			f(e)
		}
	}
}

// sweep calls f for the entries that it meets. It meets each entry that stays in the store during the sweep, unless the
// entry moves within its table. It takes no lock and no memory.
func (s *store) sweep(f func(*entry)) {
	for i := range s.shards {
		t := s.shards[i].table.Load()
		for j := range t.slots {
			if e := t.slots[j].e.Load(); e != nil {
				f(e)
			}
		}
	}
}
