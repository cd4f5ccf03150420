package hybrid

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// hubOnly is a limiter with only the fields that an eviction needs.
var hubOnly = func() *Limiter {
	br, err := circuit.New(breaker.Config{})
	if err != nil {
		panic(err)
	}
	l := &Limiter{family: &family{hub: &Hub{engine: ratesync.New(ratesync.Config{Names: lua.Names{Tags: 1}}), breakers: []*circuit.Breaker{br}}}}
	l.views = []*Limiter{l}
	return l
}()

// TestTableIsAMap checks that a table does the same as a map, however full it is, and with
// hashes that collide.
func TestTableIsAMap(t *testing.T) {
	for _, bits := range []int{1, 3, 64} { // of the hash that differ
		for _, size := range []int{4, 16, 100} {
			rng := rand.New(rand.NewPCG(1, uint64(size*bits)))
			entries := make([]*entry, size+size/2)
			hashes := make([]uint64, len(entries))
			for i := range entries {
				entries[i] = newEntry(nil, fmt.Sprint(i))
				hashes[i] = rng.Uint64() >> (64 - bits) << (64 - bits)
			}
			table, has := newTable(size), map[int]bool{}
			for range 20 * size {
				switch i := rng.IntN(len(entries)); {
				case has[i]:
					table.remove(hashes[i], entries[i])
					delete(has, i)
				case len(has) < size-size/4:
					table.put(hashes[i], entries[i])
					has[i] = true
				}
				if table.used != len(has) {
					t.Fatalf("%d entries, want %d", table.used, len(has))
				}
				for i, e := range entries {
					if got := table.find(hashes[i], e.name); got != nil != has[i] || got != nil && got != e {
						t.Fatalf("%d bits, %d slots: entry %d: %v, want it there: %t", bits, size, i, got, has[i])
					}
				}
			}
			bigger := table.grown(2 * size)
			for i, e := range entries {
				if got := bigger.find(hashes[i], e.name); got != nil != has[i] {
					t.Errorf("grown: entry %d: %v, want it there: %t", i, got, has[i])
				}
			}
			table.remove(hashes[0], &entry{}) // an entry that is not in the table
		}
	}
}

// TestStoreWhileItChanges checks that a lookup without a lock returns the key's own entry or
// none, whatever happens meanwhile. It misses an unchanged entry only for a moment.
func TestStoreWhileItChanges(t *testing.T) {
	const keys, max = 400, 256
	s := newStore(max, func() {})
	made := make([]*entry, keys)
	for i := range made {
		made[i] = newEntry(hubOnly, fmt.Sprint("k", i))
	}
	for i := range 20 {
		s.add(made[i], 0)
	}
	var wg, readers sync.WaitGroup
	var stop atomic.Bool
	var found, missed atomic.Int64
	for g := range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			rng := rand.New(rand.NewPCG(2, uint64(g)))
			for !stop.Load() {
				i := rng.IntN(keys)
				switch e := s.get(made[i].name); {
				case e == nil:
					missed.Add(1)
				case e.name != made[i].name:
					t.Errorf("asked for %q, got %q", made[i].name, e.name)
				default:
					found.Add(1)
				}
			}
		}()
	}
	for g := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(3, uint64(g)))
			for range 5_000 {
				i := 20 + rng.IntN(keys-20)
				e := newEntry(made[i].lim, made[i].name)
				if got, _ := s.add(e, 0); got == nil || got.name != e.name {
					t.Errorf("added %q, got %v", e.name, got)
				}
				for i := range 20 { // in use, so not the least recently used
					if s.lookup(made[i].name) != made[i] {
						t.Errorf("%q is gone", made[i].name)
					}
				}
			}
		}()
	}
	wg.Wait()
	stop.Store(true)
	readers.Wait()
	if s.len() > max || found.Load() == 0 || missed.Load() == 0 {
		t.Errorf("%d keys, at most %d; %d found, %d missed", s.len(), max, found.Load(), missed.Load())
	}
	swept := 0
	s.sweep(func(*entry) { swept++ })
	each := 0
	s.each(func(e *entry) {
		each++
		if s.get(e.name) != e {
			t.Errorf("%q is not found", e.name)
		}
	})
	if swept != s.len() || each != s.len() {
		t.Errorf("%d swept, %d of each, %d keys", swept, each, s.len())
	}
}

// TestProbesAreShort checks that probes stay short up to the last key that fits.
func TestProbesAreShort(t *testing.T) {
	const keys = 20_000
	s := newStore(keys, func() {})
	for i := range keys {
		s.add(newEntry(hubOnly, fmt.Sprint("key", i)), 0)
	}
	probes, longest := 0, 0
	for i := range s.shards {
		table := s.shards[i].table.Load()
		for j := range table.slots {
			if e := table.slots[j].e.Load(); e != nil {
				n := 1 + (j-table.home(maphash.String(s.seed, e.name))+len(table.slots))%len(table.slots)
				probes, longest = probes+n, max(longest, n)
			}
		}
	}
	if mean := float64(probes) / float64(s.len()); mean > 3 || longest > 200 {
		t.Errorf("%.2f probes for a key, %d at most", mean, longest)
	}
}
