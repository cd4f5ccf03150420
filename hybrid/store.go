package hybrid

import (
	"hash/maphash"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// store holds a limiter's entries: shards of golang-lru, each under its own
// lock, so that an eviction can be refused and no lock is shared by all keys.
type store struct {
	seed   maphash.Seed
	mask   uint64
	shards []shard

	evicted   atomic.Uint64
	refused   atomic.Uint64 // insertions refused because nothing could be evicted
	lastEvict atomic.Int64  // ns on the hub's clock; negative: never
}

type shard struct {
	mu  sync.Mutex
	lru *simplelru.LRU[string, *entry]
	max int
	_   [64]byte // its own cache line
}

// perShard is how many keys a shard should hold at least: splitting a small
// bound over many shards would evict unevenly.
const perShard = 1024

func newStore(maxKeys int) *store {
	n := 1
	for n < 4*runtime.GOMAXPROCS(0) && n < 256 && maxKeys/(2*n) >= perShard {
		n *= 2
	}
	s := &store{seed: maphash.MakeSeed(), mask: uint64(n - 1), shards: make([]shard, n)}
	s.lastEvict.Store(-1)
	for i := range s.shards {
		size := maxKeys / n
		if i < maxKeys%n {
			size++
		}
		// One more than is ever used: simplelru must not evict by itself.
		lru, err := simplelru.NewLRU[string, *entry](size+1, nil)
		if err != nil {
			panic("hybrid: " + err.Error()) // size is positive
		}
		s.shards[i].lru, s.shards[i].max = lru, size
	}
	return s
}

func (s *store) shard(key string) *shard {
	return &s.shards[maphash.String(s.seed, key)&s.mask]
}

// get finds a key and notes its use.
func (s *store) get(key string) *entry {
	sh := s.shard(key)
	sh.mu.Lock()
	e, _ := sh.lru.Get(key)
	sh.mu.Unlock()
	return e
}

// evictTries is how many of the least recently used are looked at for one that
// owes nothing.
const evictTries = 8

// add puts an entry in unless the key is there already, evicting the least
// recently used that may go. It returns what the key has now, nil when
// nothing could go, and the entries that must pay before they can.
func (s *store) add(key string, e *entry, now int64) (got *entry, owing []*entry) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if have, ok := sh.lru.Get(key); ok {
		return have, nil
	}
	for try := 0; sh.lru.Len() >= sh.max; try++ {
		oldKey, old, _ := sh.lru.GetOldest()
		if old.tryEvict(now) {
			sh.lru.Remove(oldKey)
			s.evicted.Add(1)
			s.lastEvict.Store(now)
			break
		}
		owing = append(owing, old)
		if try+1 >= evictTries {
			s.refused.Add(1)
			return nil, owing
		}
		sh.lru.Get(oldKey) // the newest now: the next try sees another
	}
	// The caller's string may be a piece of a request or of a buffer that is
	// about to be used again.
	sh.lru.Add(strings.Clone(key), e)
	return e, owing
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
		entries := sh.lru.Values()
		sh.mu.Unlock()
		for _, e := range entries {
			f(e)
		}
	}
}
