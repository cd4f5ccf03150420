package hybrid

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
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

// TestProbesAreShort checks that probes stay short up to the last key that fits. The hash is seeded, and with one seed
// of many the longest probe is above its bound by chance: the best of three counts.
func TestProbesAreShort(t *testing.T) {
	best := math.MaxInt
	for range 3 {
		mean, longest := probesOf(20_000)
		if best = min(best, longest); mean > 3 {
			t.Errorf("%.2f probes for a key", mean)
		}
	}
	if best > 200 {
		t.Errorf("%d probes at most, with the best of three seeds", best)
	}
}

// probesOf returns the mean and the largest number of probes for a key, in a new store that is full of keys.
func probesOf(keys int) (mean float64, longest int) {
	s := newStore(keys, func() {})
	for i := range keys {
		s.add(newEntry(hubOnly, fmt.Sprint("key", i)), 0)
	}
	probes := 0
	for i := range s.shards {
		table := s.shards[i].table.Load()
		for j := range table.slots {
			if e := table.slots[j].e.Load(); e != nil {
				n := 1 + (j-table.home(maphash.String(s.seed, e.name))+len(table.slots))%len(table.slots)
				probes, longest = probes+n, max(longest, n)
			}
		}
	}
	return float64(probes) / float64(s.len()), longest
}
