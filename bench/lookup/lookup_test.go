// This package measures the lookup of a key by hybrid's table, by xsync.Map and by
// otter. table_test.go is a link to hybrid's table. hybrid/store_bench_test.go has
// sync.Map. The results are in docs/decisions/0015-a-table-beside-the-lru.md and
// 0059-lru-and-rate-come-back.md.
package hybrid

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/maypok86/otter/v2"
	"github.com/puzpuzpuz/xsync/v4"
)

// entry has the size of hybrid's entry, and stores the key in the same way.
type entry struct {
	name  string
	short [24]byte
	chain atomic.Pointer[entry]
	_     [240]byte
}

func newEntry(key string) *entry {
	e := new(entry)
	e.name = unsafe.String(&e.short[0], copy(e.short[:], key))
	return e
}

func (e *entry) is(key string) bool {
	return len(e.name) == len(key) && string(e.short[:len(key)]) == key
}

type finder interface {
	find(key string) *entry
	add(e *entry)
}

const shards = 8 // as hybrid has on two cores

// withTable is as the store of hybrid: a table for each shard, and golang-lru under
// its lock.
type withTable struct {
	seed   maphash.Seed
	shards [shards]struct {
		table table
		lru   *simplelru.LRU[*entry, struct{}]
	}
}

func newWithTable(keys int) finder {
	w := &withTable{seed: maphash.MakeSeed()}
	for i := range w.shards {
		w.shards[i].table = make(table, minTable)
		w.shards[i].lru, _ = simplelru.NewLRU[*entry, struct{}](keys, nil)
	}
	return w
}

func (w *withTable) find(key string) *entry {
	hash := maphash.String(w.seed, key)
	return w.shards[hash&(shards-1)].table.find(hash, key)
}

func (w *withTable) add(e *entry) {
	hash := maphash.String(w.seed, e.name)
	s := &w.shards[hash&(shards-1)]
	if n := s.lru.Len(); n == len(s.table) {
		s.table = s.table.grown(2*n, w.seed)
	}
	s.table.put(hash, e)
	s.lru.Add(e, struct{}{})
}

// withXsync has xsync.Map instead of the tables.
type withXsync struct {
	m   *xsync.Map[string, *entry]
	mu  sync.Mutex
	lru *simplelru.LRU[*entry, struct{}]
}

func newWithXsync(keys int) finder {
	lru, _ := simplelru.NewLRU[*entry, struct{}](keys, nil)
	return &withXsync{m: xsync.NewMap[string, *entry](), lru: lru}
}

func (w *withXsync) find(key string) *entry {
	e, _ := w.m.Load(key)
	return e
}

func (w *withXsync) add(e *entry) {
	w.m.Store(e.name, e)
	w.mu.Lock()
	w.lru.Add(e, struct{}{})
	w.mu.Unlock()
}

// withOtter replaces both the tables and golang-lru.
type withOtter struct{ c *otter.Cache[string, *entry] }

func newWithOtter(keys int) finder {
	return withOtter{otter.Must(&otter.Options[string, *entry]{MaximumSize: keys})}
}

func (w withOtter) find(key string) *entry {
	e, _ := w.c.GetIfPresent(key)
	return e
}

func (w withOtter) add(e *entry) { w.c.Set(e.name, e) }

var finders = []struct {
	name string
	make func(keys int) finder
}{
	{"table+lru", newWithTable},
	{"xsync.Map+lru", newWithXsync},
	{"otter", newWithOtter},
}

// BenchmarkLookup finds one hot key, and keys drawn by Zipf's law.
func BenchmarkLookup(b *testing.B) {
	const keys = 100_000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("%020d", i)
	}
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, keys-1)
	order := make([]string, 1<<16)
	for i := range order {
		order[i] = names[zipf.Uint64()]
	}
	for _, f := range finders {
		store := f.make(2 * keys)
		for _, name := range names {
			store.add(newEntry(name))
		}
		for _, load := range []struct {
			name string
			key  func(i int) string
		}{
			{"hot", func(int) string { return names[7] }},
			{"zipf", func(i int) string { return order[i&(1<<16-1)] }},
		} {
			for _, goroutines := range []int{1, 2, 64} {
				b.Run(fmt.Sprintf("load=%s/goroutines=%d/store=%s", load.name, goroutines, f.name), func(b *testing.B) {
					b.ReportAllocs()
					before := cpu()
					var wg sync.WaitGroup
					for g := range goroutines {
						wg.Go(func() {
							for i := range b.N / goroutines {
								if store.find(load.key(i+g*1000)) == nil {
									b.Error("not found")
									return
								}
							}
						})
					}
					wg.Wait()
					b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
				})
			}
		}
	}
}

// cpu returns the CPU time of this process in ns, which is more reliable than
// wall time on a shared machine.
func cpu() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkMemory reports the bytes for each of a million keys, with the 288
// bytes of the entry.
func BenchmarkMemory(b *testing.B) {
	const keys = 1_000_000
	for _, f := range finders {
		b.Run("store="+f.name, func(b *testing.B) {
			for range b.N {
				before := heap()
				store := f.make(2 * keys) // so that no key is evicted
				for i := range keys {
					store.add(newEntry(fmt.Sprintf("%020d", i)))
				}
				b.ReportMetric(float64(heap()-before)/keys, "B/key")
				runtime.KeepAlive(store)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestFinders checks that all stores find all their keys, and no others.
func TestFinders(t *testing.T) {
	for _, f := range finders {
		store := f.make(10_000)
		for i := range 5000 {
			store.add(newEntry(fmt.Sprint("key", i)))
		}
		for i := range 6000 {
			if e := store.find(fmt.Sprint("key", i)); (e != nil) != (i < 5000) || e != nil && !e.is(fmt.Sprint("key", i)) {
				t.Fatalf("%s: key%d: %v", f.name, i, e)
			}
		}
	}
	if size := unsafe.Sizeof(entry{}); size != 288 {
		t.Errorf("an entry has %d bytes, hybrid's has 288", size)
	}
}
