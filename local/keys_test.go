package local

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
)

// TestKeysAreAMap compares keys with a map, in any order of calls. The hashes come from
// a small set, so that probes are long and wrap around.
func TestKeysAreAMap(t *testing.T) {
	p := newPlan(hybridlimit.PerSecond(1), 0, time.Unix(0, 0))
	rapid.Check(t, func(t *rapid.T) {
		const room = 40
		var k keys
		model := map[string]*entry{}
		hashes := rapid.SliceOfN(rapid.Uint64(), 1, 4).Draw(t, "hashes")
		hash := func(key string) uint64 { return hashes[int(key[len(key)-1])%len(hashes)] }
		name := func(e *entry) string { return e.long + string(e.short[:e.size]) }
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			key := strings.Repeat("x", rapid.SampledFrom([]int{0, 22, 40}).Draw(t, "length")) + fmt.Sprint(rapid.IntRange(0, 60).Draw(t, "key"))
			e := model[key]
			if got := k.find(hash(key), key); got != e {
				t.Fatalf("found %v, want %v", got, e)
			}
			switch {
			case e != nil && rapid.Bool().Draw(t, "remove"):
				k.remove(hash(key), e)
				delete(model, key)
			case e != nil:
				e.used = true
			case len(model) == room:
				old := k.victim()
				e = newEntry(p, nil)
				e.name(key)
				k.replace(hash(name(old)), old, hash(key), e, room)
				delete(model, name(old))
				model[key] = e
			default:
				e = newEntry(p, nil)
				e.name(key)
				k.add(hash(key), e, room)
				model[key] = e
			}
			if len(k.ring) != len(model) || k.table.used != len(model) || k.hand > 0 && k.hand >= len(k.ring) {
				t.Fatalf("%d in the ring, %d in the table, hand %d; want %d", len(k.ring), k.table.used, k.hand, len(model))
			}
			for key, e := range model {
				if k.find(hash(key), key) != e || k.ring[e.at] != e || !e.is(key) || e.is(key+"x") {
					t.Fatalf("%q is lost", key)
				}
			}
		}
	})
}

// TestHashOfAnEntry checks that an entry has the hash of its key.
func TestHashOfAnEntry(t *testing.T) {
	seed := maphash.MakeSeed()
	for n := 1; n < 3*shortKey; n++ {
		var e entry
		key := strings.Repeat("k", n)
		e.name(key)
		if e.hash(seed) != maphash.String(seed, key) {
			t.Errorf("%d bytes: another hash", n)
		}
	}
}
