package hybrid

// ring has the entries of a shard in the order of their eviction. The lock of the shard guards it.
//
// A full ring evicts by second chance (CLOCK): its hand passes over an entry that was used since it came or since the
// hand passed it last, and takes the first other one. So a use writes a mark and moves nothing. A key whose use is noted
// more often than once in a round of the hand stays, as in an LRU of the same size: a round takes as many new keys as
// there are keys that are not in use.
type ring struct {
	entries []*entry
	hand    int    // the next entry that can be evicted
	uses    uint32 // the uses so far, as a clock
}

// mark is the last noted use of an entry: ring.uses of that time, and in the lowest bit whether the hand has not passed
// the entry since then. The lock of the shard guards it.
type mark uint32

const unpassed mark = 1

// passes is the largest number of marked entries that the hand passes over for one victim. It bounds the time under the
// lock if all keys are in use.
const passes = 64

// grow makes room for a number of entries, and no more than that.
func (r *ring) grow(room int) { r.entries = append(make([]*entry, 0, room), r.entries...) }

// add adds an entry at the end.
func (r *ring) add(e *entry) {
	r.entries = append(r.entries, e)
	r.came(e)
}

// replace puts an entry in the place of a victim.
func (r *ring) replace(place int, e *entry) {
	r.entries[place] = e
	r.came(e)
	if place == r.hand {
		r.pass()
	}
}

// came dates an entry that came in. Only a use after that lets the hand pass over it.
func (r *ring) came(e *entry) {
	r.uses++
	e.mark = mark(r.uses << 1)
}

// use notes the use of an entry.
func (r *ring) use(e *entry) {
	r.uses++
	e.mark = mark(r.uses<<1) | unpassed
}

// victim returns the place of the entry to be evicted next: the first one that was not used since the hand passed it. If
// the next entries were all used, it is the one of them whose last use is the oldest. An entry that is returned and not
// evicted must be used, so that the next victim is another one.
func (r *ring) victim() int {
	oldest := r.hand
	for range min(passes, len(r.entries)) {
		at := r.hand
		e := r.entries[at]
		if e.mark&unpassed == 0 {
			return at
		}
		e.mark &^= unpassed
		if e.mark.before(r.entries[oldest].mark) {
			oldest = at
		}
		r.pass()
	}
	return oldest
}

func (r *ring) pass() {
	if r.hand++; r.hand == len(r.entries) {
		r.hand = 0
	}
}

// before reports whether an earlier use was noted in m than in other. The numbers of uses wrap around.
func (m mark) before(other mark) bool { return int32(m-other) < 0 }

// victims returns the next n victims, if each is used instead of evicted. It changes nothing.
func (r *ring) victims(n int) []*entry {
	before := *r
	marks := make([]mark, min(n*passes, len(r.entries))) // the hand reaches no further
	for i := range marks {
		marks[i] = r.entries[(before.hand+i)%len(r.entries)].mark
	}
	out := make([]*entry, n)
	for i := range out {
		out[i] = r.entries[r.victim()]
		r.use(out[i])
	}
	for i, m := range marks {
		r.entries[(before.hand+i)%len(r.entries)].mark = m
	}
	*r = before
	return out
}
