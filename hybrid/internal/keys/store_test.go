package keys

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
		s := NewStore(room, func() {})
		var model []*Entry // the one whose noted use is the oldest comes first
		owes := map[*Entry]bool{}
		place := func(key string) int { return slices.IndexFunc(model, func(e *Entry) bool { return e.Name == key }) }
		use := func(i int) {
			e := model[i]
			model = append(slices.Delete(model, i, i+1), e)
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := fmt.Sprint(rapid.IntRange(0, 2*room).Draw(t, "key"))
			i := place(key)
			var want *Entry
			if i >= 0 {
				want = model[i]
			}
			switch rapid.SampledFrom([]string{"lookup", "peek", "owe", "add"}).Draw(t, "step") {
			case "lookup":
				if got := s.Lookup(key); got != want {
					t.Fatalf("lookup(%s): %v, want %v", key, got, want)
				} else if i >= 0 {
					use(i)
				}
			case "peek":
				if s.Peek(key) != want || s.Get(key) != want {
					t.Fatalf("peek(%s): %v, want %v", key, s.Peek(key), want)
				}
			case "owe":
				if want != nil && !owes[want] {
					want.Mu.Lock()
					owes[want] = true
				}
			case "add":
				e := NewEntry(hubOnly, key)
				var owing []*Entry
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
				got, ow := s.Add(e, 0)
				if got != want || !slices.Equal(ow, owing) {
					t.Fatalf("add(%s): %v and %d that owe, want %v and %d", key, got, len(ow), want, len(owing))
				}
			}
			for _, e := range model {
				if s.Get(e.Name) != e {
					t.Fatalf("%s is lost", e.Name)
				}
			}
			if n := s.shards[0].lru.Len(); n != len(model) || s.Keys.Load() != int64(n) {
				t.Fatalf("%d keys, counted %d, want %d", n, s.Keys.Load(), len(model))
			}
		}
	})
}

// TestStoreGrowsInSteps bounds the number of chains beside the entries.
func TestStoreGrowsInSteps(t *testing.T) {
	for _, most := range []int{1, 10, 16, 100, 1000, 1500} {
		s := NewStore(most, func() {})
		for i := range 2 * most {
			s.Add(NewEntry(hubOnly, fmt.Sprint(i)), 0)
			if chains, keys := len(*s.shards[0].table.Load()), int(s.Keys.Load()); keys > most || chains < keys || chains > max(minTable, 2*keys) {
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
			s := NewStore(evictTries, func() {})
			var made []*Entry
			for i := range evictTries {
				e := NewEntry(hubOnly, fmt.Sprint(i))
				s.Add(e, 0)
				made = append(made, e)
			}
			for i, e := range made {
				if used {
					s.Lookup(e.Name)
				}
				if i != free {
					e.Mu.Lock()
				}
			}
			got, owing := s.Add(NewEntry(hubOnly, "new"), 0)
			if got == nil || s.Peek(made[free].Name) != nil || s.Keys.Load() != evictTries || len(owing) != free {
				t.Errorf("%d is free, all used %t: it was not evicted, %d owe", free, used, len(owing))
			}
		}
	}
}

// TestRefusedKeysAskOthersToPay checks that a key that finds no room changes nothing but the order, and gets the entries
// that must pay.
func TestRefusedKeysAskOthersToPay(t *testing.T) {
	const keys = 3 * evictTries
	s := NewStore(keys, func() {})
	for i := range keys {
		e := NewEntry(hubOnly, fmt.Sprint(i))
		s.Add(e, 0)
		e.Mu.Lock()
	}
	asked := map[*Entry]bool{}
	for range keys / evictTries {
		got, owing := s.Add(NewEntry(hubOnly, "new"), 0)
		if got != nil || len(owing) != evictTries {
			t.Fatalf("got %v, %d owe; want none and %d", got, len(owing), evictTries)
		}
		for _, e := range owing {
			asked[e] = true
		}
	}
	if len(asked) != keys || s.Keys.Load() != keys || s.Refused.Load() != keys/evictTries || s.Evicted.Load() != 0 {
		t.Errorf("%d asked to pay, %d keys, %d refused, %d evicted", len(asked), s.Keys.Load(), s.Refused.Load(), s.Evicted.Load())
	}
}
