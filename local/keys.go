package local

// keys are the entries of a shard, in the order of a ring. The lock of the shard guards
// them.
//
// A full ring evicts by second chance (CLOCK): its hand passes over an entry that was
// used since it came or since the hand passed it last, and takes the first other one. So
// a use writes a mark and moves nothing. An LRU list writes four entries for each use. A
// key that is used more often than once in a round of the hand stays, as in an LRU of
// the same size: a round takes as many new keys as there are keys that are not in use.
type keys struct {
	table table
	ring  []*entry // ring[e.at] == e
	hand  int      // the next entry that can be evicted
	broom int      // the entries before it are still to be checked for idleness
}

// passes is the largest number of marked entries that one eviction passes over. It
// bounds the time under the lock if all keys are in use.
const passes = 4

func (k *keys) find(hash uint64, key string) *entry { return k.table.find(hash, key) }

// add adds an entry at the end of the ring, for a key that is not held. most is the
// largest number of entries.
func (k *keys) add(hash uint64, e *entry, most int) {
	e.at = uint32(len(k.ring))
	k.ring = append(k.ring, e)
	k.table.put(hash, e, most)
}

// replace puts an entry in the place of another one, just behind the hand.
func (k *keys) replace(oldHash uint64, old *entry, hash uint64, e *entry, most int) {
	k.table.remove(oldHash, old)
	e.at = old.at
	k.ring[e.at] = e
	k.table.put(hash, e, most)
	if int(e.at) == k.hand {
		k.pass()
	}
}

// victim returns the entry to be evicted next: the first one without a mark. If the
// next entries all have one, it is the one of them that was used least recently.
func (k *keys) victim() *entry {
	oldest := k.ring[k.hand]
	for range min(passes, len(k.ring)) {
		e := k.ring[k.hand]
		if !e.used {
			return e
		}
		e.used = false
		if e.seen < oldest.seen {
			oldest = e
		}
		k.pass()
	}
	return oldest
}

func (k *keys) pass() {
	if k.hand++; k.hand == len(k.ring) {
		k.hand = 0
	}
}

// remove removes an entry. The last one takes its place in the ring.
func (k *keys) remove(hash uint64, e *entry) {
	k.table.remove(hash, e)
	end := len(k.ring) - 1
	last := k.ring[end]
	k.ring[e.at], last.at = last, e.at
	k.ring[end] = nil
	k.ring = k.ring[:end]
	if k.hand == end {
		k.hand = 0
	}
}
