package keys

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// marks remembers the marks of keys, lua.Names.Digest, while a key of the deployment is paused: each decision that takes
// the slow path looks for the pause of its key, and a mark is an HMAC. Keys with the same place replace each other. The
// zero marks is empty.
type marks struct {
	places atomic.Pointer[[markPlaces]atomic.Pointer[marked]] // nil before the first pause
}

const (
	markPlaces = 512
	markedKey  = 256 // bytes; the mark of a longer key is not remembered
)

type marked struct{ key, mark string }

var markSeed = maphash.MakeSeed()

// mark returns the mark of a key.
func (t *Terms) mark(key string) string {
	if len(key) > markedKey {
		return t.Names.Digest(t.Name, key)
	}
	all := t.marks.places.Load()
	if all == nil {
		t.marks.places.CompareAndSwap(nil, new([markPlaces]atomic.Pointer[marked]))
		all = t.marks.places.Load()
	}
	place := &all[maphash.String(markSeed, key)%markPlaces]
	m := place.Load()
	if m == nil || m.key != key {
		m = &marked{strings.Clone(key), t.Names.Digest(t.Name, key)}
		place.Store(m)
	}
	return m.mark
}
