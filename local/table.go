package local

import "math/bits"

// table finds entries by key: open addressing with linear probing, as in hybrid. The
// lock of the shard guards it.
type table struct {
	slots []slot
	used  int
}

// slot is empty if entry is nil. By the hash, a search skips the entries of other keys
// without reading them.
type slot struct {
	hash  uint64
	entry *entry
}

// minTable is the smallest number of slots, once there is an entry.
const minTable = 16

// home returns the slot at which the probe for a hash begins. The high bits choose,
// because the low bits chose the shard.
func (t *table) home(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(len(t.slots)))
	return int(hi)
}

// find returns the entry of a key, or nil.
func (t *table) find(hash uint64, key string) *entry {
	slots := t.slots
	if len(slots) == 0 {
		return nil
	}
	for i := t.home(hash); ; {
		s := &slots[i]
		if s.entry == nil {
			return nil
		}
		if s.hash == hash && s.entry.is(key) {
			return s.entry
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
}

// put adds an entry that is not in the table. A quarter of the slots stays empty, so
// that probes are short. A table for most entries has a third more slots than that.
func (t *table) put(hash uint64, e *entry, most int) {
	if t.used >= len(t.slots)-len(t.slots)/4 {
		t.grow(max(minTable, min(2*len(t.slots), most+most/3+2)))
	}
	t.place(hash, e)
	t.used++
}

func (t *table) place(hash uint64, e *entry) {
	i := t.home(hash)
	for t.slots[i].entry != nil {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.slots[i] = slot{hash, e}
}

func (t *table) grow(size int) {
	old := t.slots
	t.slots = make([]slot, size)
	for _, s := range old {
		if s.entry != nil {
			t.place(s.hash, s.entry)
		}
	}
}

// remove deletes an entry of the table, and moves back the entries behind it that it
// had displaced (Knuth, TAOCP vol. 3, 6.4, algorithm R).
func (t *table) remove(hash uint64, e *entry) {
	n := len(t.slots)
	gap := t.home(hash)
	for t.slots[gap].entry != e {
		gap = (gap + 1) % n
	}
	for i := (gap + 1) % n; t.slots[i].entry != nil; i = (i + 1) % n {
		// The entry may move to the gap unless its home lies after the gap.
		if home := t.home(t.slots[i].hash); (i-home+n)%n >= (i-gap+n)%n {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = slot{}
	t.used--
}
