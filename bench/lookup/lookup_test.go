// This package measures the lookup of a key by hybrid's table, by xsync.Map and by
// otter. table_test.go is a link to hybrid's table. hybrid/internal/keys/store_bench_test.go has
// sync.Map. The results are in docs/decisions/0015-a-table-beside-the-lru.md and
// 0059-lru-and-rate-come-back.md.
package keys

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

// Entry has the size of hybrid's, and stores the key in the same way.
type Entry struct {
	Name  string
	short [24]byte
	chain atomic.Pointer[Entry]
	_     [240]byte
}

func newEntry(key string) *Entry {
	e := new(Entry)
	e.Name = unsafe.String(&e.short[0], copy(e.short[:], key))
	return e
}

func (e *Entry) is(key string) bool {
	return len(e.Name) == len(key) && string(e.short[:len(key)]) == key
}

type finder interface {
	find(key string) *Entry
	add(e *Entry)
}

const shards = 8 // as hybrid has on two cores

// withTable is as the store of hybrid: a table for each shard, and golang-lru under
// its lock.
type withTable struct {
	seed   maphash.Seed
	shards [shards]struct {
		table table
		lru   *simplelru.LRU[*Entry, struct{}]
	}
}

func newWithTable(keys int) finder {
	w := &withTable{seed: maphash.MakeSeed()}
	for i := range w.shards {
		w.shards[i].table = make(table, minTable)
		w.shards[i].lru, _ = simplelru.NewLRU[*Entry, struct{}](keys, nil)
	}
	return w
}

func (w *withTable) find(key string) *Entry {
	hash := maphash.String(w.seed, key)
	return w.shards[hash&(shards-1)].table.find(hash, key)
}

func (w *withTable) add(e *Entry) {
	hash := maphash.String(w.seed, e.Name)
	s := &w.shards[hash&(shards-1)]
	if n := s.lru.Len(); n == len(s.table) {
		s.table = s.table.grown(2*n, w.seed)
	}
	s.table.put(hash, e)
	s.lru.Add(e, struct{}{})
}

// withXsync has xsync.Map instead of the tables.
type withXsync struct {
	m   *xsync.Map[string, *Entry]
	mu  sync.Mutex
	lru *simplelru.LRU[*Entry, struct{}]
}

func newWithXsync(keys int) finder {
	lru, _ := simplelru.NewLRU[*Entry, struct{}](keys, nil)
	return &withXsync{m: xsync.NewMap[string, *Entry](), lru: lru}
}

func (w *withXsync) find(key string) *Entry {
	e, _ := w.m.Load(key)
	return e
}

func (w *withXsync) add(e *Entry) {
	w.m.Store(e.Name, e)
	w.mu.Lock()
	w.lru.Add(e, struct{}{})
	w.mu.Unlock()
}

// withOtter replaces both the tables and golang-lru.
type withOtter struct{ c *otter.Cache[string, *Entry] }

func newWithOtter(keys int) finder {
	return withOtter{otter.Must(&otter.Options[string, *Entry]{MaximumSize: keys})}
}

func (w withOtter) find(key string) *Entry {
	e, _ := w.c.GetIfPresent(key)
	return e
}

func (w withOtter) add(e *Entry) { w.c.Set(e.Name, e) }

var finders = []struct {
	Name string
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
				b.Run(fmt.Sprintf("load=%s/goroutines=%d/store=%s", load.name, goroutines, f.Name), func(b *testing.B) {
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
// bytes of the Entry.
func BenchmarkMemory(b *testing.B) {
	const keys = 1_000_000
	for _, f := range finders {
		b.Run("store="+f.Name, func(b *testing.B) {
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
				t.Fatalf("%s: key%d: %v", f.Name, i, e)
			}
		}
	}
	if size := unsafe.Sizeof(Entry{}); size != 288 {
		t.Errorf("an Entry has %d bytes, hybrid's has 288", size)
	}
}
