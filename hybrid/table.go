package hybrid

import (
	"math/bits"
	"sync/atomic"
)

// table finds entries without a lock. It uses open addressing with linear probing over a fixed array. A writer holds
// the lock of the shard, and may move entries that readers are looking for. So a reader that finds nothing must look
// again under the lock. A reader that finds an entry which was just evicted learns this from the entry, because its
// budget is void. The alternatives that were tried are in docs/decisions/0015-a-table-beside-the-lru.md.
type table struct {
	slots []slot
	used  int // guarded by the shard's lock
}

// slot is empty if e is nil. By the hash, a search skips most entries of other keys without reading them.
type slot struct {
	hash atomic.Uint64
	e    atomic.Pointer[entry]
}

// minTable is the initial size of a table.
const minTable = 16

func newTable(size int) *table { return &table{slots: make([]slot, size)} }

// home returns the slot where the probe for a hash begins. The high bits choose, because the low bits chose the
// shard.
func (t *table) home(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(len(t.slots)))
	return int(hi)
}

// find returns the entry of a key, or nil. It needs no lock.
func (t *table) find(hash uint64, key string) *entry {
	i := t.home(hash)
	for range t.slots {
		s := &t.slots[i]
		e := s.e.Load()
		if e == nil {
			return nil
		}
		if s.hash.Load() == hash && e.is(key) {
			return e
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	return nil
}

// room returns the number of entries up to which probes are short: ¾ of the slots.
func (t *table) room() int { return len(t.slots) - len(t.slots)/4 }

// full reports whether another entry would make probes long.
func (t *table) full() bool { return t.used >= t.room() }

// put adds an entry that is not in the table. The table must not be full: at least one slot must stay empty, or a
// search would not end.
func (t *table) put(hash uint64, e *entry) {
	i := t.home(hash)
	for t.slots[i].e.Load() != nil {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.slots[i].hash.Store(hash)
	t.slots[i].e.Store(e)
	t.used++
}

// remove deletes an entry, and moves back the entries behind it that it had displaced (Knuth, TAOCP vol. 3, 6.4,
// algorithm R). It leaves no tombstones, which only a new table could clear.
func (t *table) remove(hash uint64, e *entry) {
	gap := t.home(hash)
	for t.slots[gap].e.Load() != e {
		if t.slots[gap].e.Load() == nil {
			return
		}
		gap = t.after(gap)
	}
	for i := t.after(gap); ; i = t.after(i) {
		next := t.slots[i].e.Load()
		if next == nil {
			break
		}
		at := t.slots[i].hash.Load()
		// The entry may move to the gap unless its home lies after the gap.
		if t.steps(t.home(at), i) >= t.steps(gap, i) {
			t.slots[gap].hash.Store(at)
			t.slots[gap].e.Store(next)
			gap = i
		}
	}
	t.slots[gap].e.Store(nil)
	t.used--
}

// after returns the slot after a slot.
func (t *table) after(i int) int {
	if i++; i < len(t.slots) {
		return i
	}
	return 0
}

// steps returns the number of slots from one slot to another.
func (t *table) steps(from, to int) int {
	if to >= from {
		return to - from
	}
	return to - from + len(t.slots)
}

// grown returns a table of another size with the same entries.
func (t *table) grown(size int) *table {
	out := newTable(size)
	for i := range t.slots {
		if e := t.slots[i].e.Load(); e != nil {
			out.put(t.slots[i].hash.Load(), e)
		}
	}
	return out
}
