package hybrid

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/hybridlimit/hybridlimit/internal/rapidseed"
)

// TestVictim compares each eviction with a list of keys and a hand. It also checks that victims foretells the entries of
// which each is used instead of evicted.
func TestVictim(t *testing.T) {
	type held struct {
		e    *entry
		used bool
		seen int
	}
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SampledFrom([]int{1, 2, 9, passes, 2*passes + 3}).Draw(t, "room")
		r := ring{uses: rapid.SampledFrom([]uint32{0, 1<<31 - 20, 1<<32 - 20}).Draw(t, "uses so far")}
		var model []*held
		hand, now := 0, 0
		note := func(h *held, used bool) { now++; h.used, h.seen = used, now }
		victim := func() int {
			oldest := hand
			for range min(passes, room) {
				if !model[hand].used {
					return hand
				}
				model[hand].used = false
				if model[hand].seen < model[oldest].seen {
					oldest = hand
				}
				hand = (hand + 1) % room
			}
			return oldest
		}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			switch i := rapid.IntRange(0, room).Draw(t, "entry"); {
			case i < len(model):
				r.use(model[i].e)
				note(model[i], true)
			case len(model) < room:
				h := &held{e: &entry{}}
				r.add(h.e)
				note(h, false)
				model = append(model, h)
			case rapid.Bool().Draw(t, "owes"):
				foretold := r.victims(3)
				for n := range foretold {
					place, want := r.victim(), victim()
					if r.entries[place] != model[want].e || foretold[n] != model[want].e {
						t.Fatalf("victim %d is at %d, want %d", n, place, want)
					}
					r.use(model[want].e)
					note(model[want], true)
				}
			default:
				place, want := r.victim(), victim()
				if place != want {
					t.Fatalf("the victim is at %d, want %d", place, want)
				}
				h := &held{e: &entry{}}
				r.replace(place, h.e)
				note(h, false)
				model[want] = h
				if want == hand {
					hand = (hand + 1) % room
				}
			}
			if !slices.EqualFunc(r.entries, model, func(e *entry, h *held) bool { return e == h.e && e.mark&unpassed != 0 == h.used }) {
				t.Fatal("other entries or marks")
			}
		}
	})
}

// TestStoreGrowsInSteps bounds the memory of the table and of the ring beside the entries.
func TestStoreGrowsInSteps(t *testing.T) {
	for _, most := range []int{1, 10, 16, 100, 1000, 1500} {
		s := newStore(most, func() {})
		for i := range most {
			s.add(newEntry(hubOnly, fmt.Sprint(i)), 0)
			sh := &s.shards[0]
			slots, room, keys := len(sh.table.Load().slots), cap(sh.ring.entries), i+1
			if room > most || slots > max(minTable, keys+keys*2/3+2) || room > max(minTable, keys+keys/4) {
				t.Fatalf("%d keys of %d: %d slots, room in the ring for %d", keys, most, slots, room)
			}
		}
		if slots, room := len(s.shards[0].table.Load().slots), cap(s.shards[0].ring.entries); room != most || slots > max(minTable, most+most/3+2) {
			t.Errorf("%d keys: %d slots, room in the ring for %d", most, slots, room)
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
			inTheWay := s.inTheWay("new")
			got, owing := s.add(newEntry(hubOnly, "new"), 0)
			if got == nil || s.peek(made[free].name) != nil || s.len() != evictTries {
				t.Errorf("%d is free, all used %t: it was not evicted", free, used)
			}
			// add stops at the entry that may go.
			if n := len(owing); !slices.Equal(owing, inTheWay[:n]) || inTheWay[n] != made[free] {
				t.Errorf("%d is free, all used %t: add checked other entries than inTheWay says", free, used)
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
		want := s.inTheWay("new")
		got, owing := s.add(newEntry(hubOnly, "new"), 0)
		if got != nil || !slices.Equal(owing, want) || len(owing) != evictTries {
			t.Fatalf("got %v, %d owe; want none and %d", got, len(owing), evictTries)
		}
		for _, e := range owing {
			asked[e] = true
		}
	}
	if len(asked) != keys || s.len() != keys || s.refused.Load() != keys/evictTries || s.evicted.Load() != 0 {
		t.Errorf("%d asked to pay, %d keys, %d refused, %d evicted", len(asked), s.len(), s.refused.Load(), s.evicted.Load())
	}
}
