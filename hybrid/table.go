package hybrid

import (
	"math/bits"
	"sync/atomic"
)

// table finds entries without a lock. It is open addressing with linear
// probing over a fixed array; whoever changes it holds its shard's lock, and
// may move what others are looking for. So a reader that finds nothing has to
// look again under the lock, and one that finds an entry which has just been
// evicted learns that from the entry, whose word is void. What else was tried:
// docs/decisions/0015-a-table-beside-the-lru.md.
type table struct {
	slots []slot
	used  int // under the shard's lock
}

// slot is empty where e is nil. The hash spares a look at most entries that
// are not meant.
type slot struct {
	hash atomic.Uint64
	e    atomic.Pointer[entry]
}

// minTable is the size at which a table starts.
const minTable = 16

func newTable(size int) *table { return &table{slots: make([]slot, size)} }

// home is where an entry with this hash belongs: the high bits choose, since
// the low ones have chosen the shard.
func (t *table) home(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(len(t.slots)))
	return int(hi)
}

// find is get for readers that hold no lock, and for those that do.
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

// full says whether another entry would make probes long: beyond ¾.
func (t *table) full() bool { return t.used >= len(t.slots)-len(t.slots)/4 }

// put puts in an entry that is not there. The table must not be full: one slot
// at least stays empty, or a search would not end.
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

// remove takes out an entry, and moves those behind it that it was in the way
// of (Knuth, TAOCP vol. 3, 6.4, algorithm R): no traces are left that only a
// new table would clear away.
func (t *table) remove(hash uint64, e *entry) {
	n := len(t.slots)
	gap := t.home(hash)
	for t.slots[gap].e.Load() != e {
		if t.slots[gap].e.Load() == nil {
			return
		}
		gap = (gap + 1) % n
	}
	for i := (gap + 1) % n; ; i = (i + 1) % n {
		next := t.slots[i].e.Load()
		if next == nil {
			break
		}
		at := t.slots[i].hash.Load()
		// It may go to the gap unless its home lies behind that.
		if home := t.home(at); (i-home+n)%n >= (i-gap+n)%n {
			t.slots[gap].hash.Store(at)
			t.slots[gap].e.Store(next)
			gap = i
		}
	}
	t.slots[gap].e.Store(nil)
	t.used--
}

// grown is a table of another size with the same entries.
func (t *table) grown(size int) *table {
	out := newTable(size)
	for i := range t.slots {
		if e := t.slots[i].e.Load(); e != nil {
			out.put(t.slots[i].hash.Load(), e)
		}
	}
	return out
}
