package keys

import (
	"hash/maphash"
	"sync/atomic"
)

// table finds entries without a lock: it is a hash table whose chains go through Entry.chain. A writer holds the lock
// of the shard. A reader may miss an entry while another one of its chain moves or goes, so one that finds nothing must
// look again under the lock. One that finds an entry which was just evicted learns this from the entry, because its
// budget is void. docs/decisions/0059-lru-and-rate-come-back.md has the alternatives.
type table []atomic.Pointer[Entry]

const minTable = 16 // the initial number of chains: a power of two, as all later ones are

// chain returns the begin of the chain of a hash. The high bits choose, because the low bits chose the shard.
func (t table) chain(hash uint64) *atomic.Pointer[Entry] { return &t[hash>>32&uint64(len(t)-1)] }

// find returns the entry of a key, or nil. It needs no lock.
func (t table) find(hash uint64, key string) *Entry {
	for e := t.chain(hash).Load(); e != nil; e = e.chain.Load() {
		if e.is(key) {
			return e
		}
	}
	return nil
}

// put adds an entry that is not in the table.
func (t table) put(hash uint64, e *Entry) {
	c := t.chain(hash)
	e.chain.Store(c.Load())
	c.Store(e)
}

// remove removes an entry of the table. The entry forgets the next one: who holds it would hold that one in memory too.
func (t table) remove(hash uint64, e *Entry) {
	at := t.chain(hash)
	for at.Load() != e {
		at = &at.Load().chain
	}
	at.Store(e.chain.Load())
	e.chain.Store(nil)
}

// grown returns a table of another size, which takes over the entries.
func (t table) grown(size int, seed maphash.Seed) table {
	out := make(table, size)
	for i := range t {
		for e, next := t[i].Load(), (*Entry)(nil); e != nil; e = next {
			next = e.chain.Load()
			out.put(maphash.String(seed, e.Name), e)
		}
	}
	return out
}
