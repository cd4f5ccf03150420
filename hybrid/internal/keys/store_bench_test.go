package keys

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// These stores were compared for decisions 0015 and 0059. Each finds an entry as the fast path
// does. Recency is noted in find or, if the order of eviction is kept beside a map, on the slow
// path.

type finder interface {
	find(key string) *Entry
	add(e *Entry)
}

// ours is the store that the limiter uses.
type ours struct{ *Store }

func (s ours) find(key string) *Entry { return s.Get(key) }
func (s ours) add(e *Entry)           { s.Add(e, 0) }

// locked is golang-lru alone, in shards, each under its lock.
type locked struct {
	seed   maphash.Seed
	shards [8]struct {
		mu  sync.Mutex
		lru *simplelru.LRU[string, *Entry]
		_   [40]byte
	}
}

func newLocked(keys int) *locked {
	l := &locked{seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].lru, _ = simplelru.NewLRU[string, *Entry](keys, nil)
	}
	return l
}

func (l *locked) find(key string) *Entry {
	sh := &l.shards[maphash.String(l.seed, key)&7]
	sh.mu.Lock()
	e, _ := sh.lru.Get(key)
	sh.mu.Unlock()
	return e
}

func (l *locked) add(e *Entry) {
	sh := &l.shards[maphash.String(l.seed, e.Name)&7]
	sh.mu.Lock()
	sh.lru.Add(e.Name, e)
	sh.mu.Unlock()
}

// beside is a sync.Map with golang-lru beside it.
type beside struct {
	m   sync.Map
	mu  sync.Mutex
	lru *simplelru.LRU[*Entry, struct{}]
}

func newBeside(keys int) *beside {
	lru, _ := simplelru.NewLRU[*Entry, struct{}](keys, nil)
	return &beside{lru: lru}
}

func (b *beside) find(key string) *Entry {
	e, ok := b.m.Load(key)
	if !ok {
		return nil
	}
	return e.(*Entry)
}

func (b *beside) add(e *Entry) {
	b.m.Store(e.Name, e)
	b.mu.Lock()
	b.lru.Add(e, struct{}{})
	b.mu.Unlock()
}

var finders = []struct {
	name string
	make func(keys int) finder
}{
	{"table+lru", func(keys int) finder { return ours{NewStore(2*keys, func() {})} }},
	{"locked-lru", func(keys int) finder { return newLocked(keys) }},
	{"sync.Map+lru", func(keys int) finder { return newBeside(keys) }},
}

// BenchmarkFind measures the lookup of a key without a decision, for one hot key and for keys
// with a Zipf distribution.
func BenchmarkFind(b *testing.B) {
	const keys = 100_000
	for _, f := range finders {
		store := f.make(keys)
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprintf("%020d", i)
			store.add(NewEntry(hubOnly, names[i]))
		}
		zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, keys-1)
		order := make([]string, 1<<16)
		for i := range order {
			order[i] = names[zipf.Uint64()]
		}
		for what, of := range map[string]func(i int) string{
			"hot":  func(int) string { return names[7] },
			"zipf": func(i int) string { return order[i&(1<<16-1)] },
		} {
			b.Run(what+"/1/"+f.name, func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					if store.find(of(i)) == nil {
						b.Fatal("not found")
					}
				}
			})
			b.Run(what+"/64/"+f.name, func(b *testing.B) {
				b.SetParallelism(64 / runtime.GOMAXPROCS(0))
				b.RunParallel(func(pb *testing.PB) {
					for i := rand.IntN(1 << 16); pb.Next(); i++ {
						if store.find(of(i)) == nil {
							b.Error("not found")
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkStoreMemory measures the bytes per key of 20 bytes at a million keys, including the
// entry and the name.
func BenchmarkStoreMemory(b *testing.B) {
	const keys = 1_000_000
	for _, f := range finders {
		b.Run(f.name, func(b *testing.B) {
			for range b.N {
				var before, after runtime.MemStats
				lim := hubOnly
				runtime.GC()
				runtime.ReadMemStats(&before)
				store := f.make(keys)
				for i := range keys {
					store.add(NewEntry(lim, fmt.Sprintf("%020d", i)))
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(store)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
			}
		})
	}
}
