package hybrid

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

// TestStoreIsAnLRU compares a store of one shard with a list of keys in the order of their noted uses, under calls of every
// kind. An entry that owes is not evicted, but counts as used. A locked entry stands for one that owes.
func TestStoreIsAnLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SampledFrom([]int{1, 2, 9, 40}).Draw(t, "room")
		s := newStore(room, func() {})
		var model []*entry // the one whose noted use is the oldest comes first
		owes := map[*entry]bool{}
		place := func(key string) int { return slices.IndexFunc(model, func(e *entry) bool { return e.name == key }) }
		use := func(i int) {
			e := model[i]
			model = append(slices.Delete(model, i, i+1), e)
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := fmt.Sprint(rapid.IntRange(0, 2*room).Draw(t, "key"))
			i := place(key)
			var want *entry
			if i >= 0 {
				want = model[i]
			}
			switch rapid.SampledFrom([]string{"lookup", "peek", "owe", "add"}).Draw(t, "step") {
			case "lookup":
				if got := s.lookup(key); got != want {
					t.Fatalf("lookup(%s): %v, want %v", key, got, want)
				} else if i >= 0 {
					use(i)
				}
			case "peek":
				if s.peek(key) != want || s.get(key) != want {
					t.Fatalf("peek(%s): %v, want %v", key, s.peek(key), want)
				}
			case "owe":
				if want != nil && !owes[want] {
					want.mu.Lock()
					owes[want] = true
				}
			case "add":
				e := newEntry(hubOnly, key)
				var owing []*entry
				switch {
				case want != nil:
					use(i)
				case len(model) == room:
					for len(owing) < evictTries && owes[model[0]] {
						owing = append(owing, model[0])
						use(0)
					}
					if len(owing) == evictTries {
						break
					}
					model = model[1:]
					fallthrough
				default:
					want, model = e, append(model, e)
				}
				got, ow := s.add(e, 0)
				if got != want || !slices.Equal(ow, owing) {
					t.Fatalf("add(%s): %v and %d that owe, want %v and %d", key, got, len(ow), want, len(owing))
				}
			}
			for _, e := range model {
				if s.get(e.name) != e {
					t.Fatalf("%s is lost", e.name)
				}
			}
			if n := s.shards[0].lru.Len(); n != len(model) || s.keys.Load() != int64(n) {
				t.Fatalf("%d keys, counted %d, want %d", n, s.keys.Load(), len(model))
			}
		}
	})
}

// TestStoreGrowsInSteps bounds the number of chains beside the entries.
func TestStoreGrowsInSteps(t *testing.T) {
	for _, most := range []int{1, 10, 16, 100, 1000, 1500} {
		s := newStore(most, func() {})
		for i := range 2 * most {
			s.add(newEntry(hubOnly, fmt.Sprint(i)), 0)
			if chains, keys := len(*s.shards[0].table.Load()), int(s.keys.Load()); keys > most || chains < keys || chains > max(minTable, 2*keys) {
				t.Fatalf("%d keys of %d: %d chains", keys, most, chains)
			}
		}
	}
}

// TestEachTryIsAnotherEntry checks that add finds the only entry that may go, also if all others were used before and
// owe. A locked entry cannot go.
func TestEachTryIsAnotherEntry(t *testing.T) {
	for free := range evictTries {
		for _, used := range []bool{false, true} {
			s := newStore(evictTries, func() {})
			var made []*entry
			for i := range evictTries {
				e := newEntry(hubOnly, fmt.Sprint(i))
				s.add(e, 0)
				made = append(made, e)
			}
			for i, e := range made {
				if used {
					s.lookup(e.name)
				}
				if i != free {
					e.mu.Lock()
				}
			}
			got, owing := s.add(newEntry(hubOnly, "new"), 0)
			if got == nil || s.peek(made[free].name) != nil || s.keys.Load() != evictTries || len(owing) != free {
				t.Errorf("%d is free, all used %t: it was not evicted, %d owe", free, used, len(owing))
			}
		}
	}
}

// TestRefusedKeysAskOthersToPay checks that a key that finds no room changes nothing but the order, and gets the entries
// that must pay.
func TestRefusedKeysAskOthersToPay(t *testing.T) {
	const keys = 3 * evictTries
	s := newStore(keys, func() {})
	for i := range keys {
		e := newEntry(hubOnly, fmt.Sprint(i))
		s.add(e, 0)
		e.mu.Lock()
	}
	asked := map[*entry]bool{}
	for range keys / evictTries {
		got, owing := s.add(newEntry(hubOnly, "new"), 0)
		if got != nil || len(owing) != evictTries {
			t.Fatalf("got %v, %d owe; want none and %d", got, len(owing), evictTries)
		}
		for _, e := range owing {
			asked[e] = true
		}
	}
	if len(asked) != keys || s.keys.Load() != keys || s.refused.Load() != keys/evictTries || s.evicted.Load() != 0 {
		t.Errorf("%d asked to pay, %d keys, %d refused, %d evicted", len(asked), s.keys.Load(), s.refused.Load(), s.evicted.Load())
	}
}
