package keys

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// hubOnly is terms with only the fields that an eviction needs.
var hubOnly = &Terms{
	Engine: ratesync.New(ratesync.Config{Names: lua.Names{Tags: 1}}), Control: &control.View{Control: new(control.Control)},
	Broken: func(int) bool { return false },
}

// TestTableIsAMap checks that a table does the same as a map, however full it is, and with hashes that collide. An entry that
// is removed refers to no other one.
func TestTableIsAMap(t *testing.T) {
	for _, bits := range []int{1, 3, 64} { // of the hash that differ
		for _, size := range []int{4, 16, 128} {
			rng := rand.New(rand.NewPCG(1, uint64(size*bits)))
			entries := make([]*Entry, size+size/2)
			hashes := map[string]uint64{}
			for i := range entries {
				entries[i] = NewEntry(nil, fmt.Sprint(i))
				hashes[entries[i].Name] = rng.Uint64() >> (64 - bits) << (64 - bits)
			}
			table, has := make(table, size), map[int]bool{}
			check := func() {
				for i, e := range entries {
					if got := table.find(hashes[e.Name], e.Name); got != nil != has[i] || got != nil && got != e {
						t.Fatalf("%d bits, %d chains: entry %d: %v, want it there: %t", bits, size, i, got, has[i])
					}
				}
			}
			for range 20 * size {
				i := rng.IntN(len(entries))
				if e := entries[i]; has[i] {
					table.remove(hashes[e.Name], e)
					delete(has, i)
					if e.chain.Load() != nil {
						t.Fatal("an entry that was removed holds another one")
					}
				} else {
					table.put(hashes[e.Name], e)
					has[i] = true
				}
				check()
			}
			seed := maphash.MakeSeed()
			table = table.grown(2*size, seed)
			for name := range hashes {
				hashes[name] = maphash.String(seed, name)
			}
			check()
		}
	}
}

// TestChainsAreShort checks that chains stay short up to the last key that fits. The hash is seeded, and with one seed of many
// the longest chain is above its bound by chance: the best of three counts.
func TestChainsAreShort(t *testing.T) {
	best := math.MaxInt
	for range 3 {
		s := NewStore(20_000, func() {})
		for i := range 20_000 {
			s.Add(NewEntry(hubOnly, fmt.Sprint("key", i)), 0)
		}
		visited, longest := 0, 0
		for i := range s.shards {
			for j := range *s.shards[i].table.Load() {
				n := 0
				for e := (*s.shards[i].table.Load())[j].Load(); e != nil; e = e.chain.Load() {
					n++
				}
				visited, longest = visited+n*(n+1)/2, max(longest, n)
			}
		}
		if best = min(best, longest); visited > int(2*s.Keys.Load()) {
			t.Errorf("%d entries are looked at for %d keys", visited, s.Keys.Load())
		}
	}
	if best > 12 {
		t.Errorf("%d entries in a chain, with the best of three seeds", best)
	}
}
