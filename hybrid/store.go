package hybrid

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// store holds a limiter's entries in shards. A table per shard finds them
// without a lock; golang-lru, under the shard's lock, says which may go. What
// the common path uses is noted there on the slow path only, which every key in
// use takes before many others have come: see turnover.
type store struct {
	seed   maphash.Seed
	mask   uint64
	shards []shard

	evicted   atomic.Uint64
	refused   atomic.Uint64 // insertions refused because nothing could be evicted
	lastEvict atomic.Int64  // ns on the hub's clock; negative: never
	turnover  turnover
}

type shard struct {
	table atomic.Pointer[table]
	_     [56]byte // readers share the line of nothing that is written

	mu  sync.Mutex
	lru *simplelru.LRU[*entry, struct{}]
	max int
	_   [40]byte
}

// perShard is how many keys a shard should hold at least: splitting a small
// bound over many shards would evict unevenly.
const perShard = 1024

// newStore is for so many keys. Its void has all words end, and is called under
// a shard's lock.
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
		// One more than is ever used: simplelru must not evict by itself.
		lru, err := simplelru.NewLRU[*entry, struct{}](size+1, nil)
		if err != nil {
			panic("hybrid: " + err.Error()) // size is positive
		}
		s.shards[i].lru, s.shards[i].max = lru, size
		s.shards[i].table.Store(newTable(minTable))
	}
	return s
}

// hash is a key's.
func (s *store) hash(key string) uint64 { return maphash.String(s.seed, key) }

// get finds a key. It takes no lock, and so may miss one that is there: lookup
// does not.
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

// peek finds a key and notes nothing.
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
		sh.lru.Get(e)
	}
	return e
}

// evictTries is how many of the least recently used are looked at for one that
// owes nothing.
const evictTries = 8

// add puts an entry in unless the key is there already, evicting the least
// recently used that may go. It returns what the key has now, nil when
// nothing could go, and the entries that must pay before they can.
func (s *store) add(e *entry, now int64) (got *entry, owing []*entry) {
	hash := s.hash(e.name)
	sh := &s.shards[hash&s.mask]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if have := sh.use(hash, e.name); have != nil {
		return have, nil
	}
	if sh.lru.Len() >= sh.max-sh.max/16 {
		s.turnover.came(now)
	}
	for try := 0; sh.lru.Len() >= sh.max; try++ {
		old, _, _ := sh.lru.GetOldest()
		if old.tryEvict(now) {
			sh.lru.Remove(old)
			sh.table.Load().remove(s.hash(old.name), old)
			s.evicted.Add(1)
			s.lastEvict.Store(now)
			break
		}
		owing = append(owing, old)
		if try+1 >= evictTries {
			s.refused.Add(1)
			return nil, owing
		}
		sh.lru.Get(old) // the newest now: the next try sees another
	}
	if t := sh.table.Load(); t.full() {
		// To the end it is a third larger than its entries, so that one
		// in four slots is free.
		sh.table.Store(t.grown(min(2*len(t.slots), max(minTable, sh.max+sh.max/3+2))))
	}
	sh.table.Load().put(hash, e)
	sh.lru.Add(e, struct{}{})
	return e, owing
}

// inTheWay is the entries that add would look at for one to go if this key came
// in now; none where there is room, or the key is there already. It copies a
// shard's list: some 10 µs for 10 000 keys.
func (s *store) inTheWay(key string) []*entry {
	hash := s.hash(key)
	sh := &s.shards[hash&s.mask]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.lru.Len() < sh.max || sh.table.Load().find(hash, key) != nil {
		return nil
	}
	oldest := sh.lru.Keys() // first
	return oldest[:min(evictTries, len(oldest))]
}

// len is how many keys are held.
func (s *store) len() int {
	total := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		total += sh.lru.Len()
		sh.mu.Unlock()
	}
	return total
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

// sweep calls f for the entries that it meets: all that are there before and
// after, but for those that move meanwhile. It takes no lock and no memory.
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
