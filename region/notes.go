package region

import (
	"strings"
	"sync"
	"sync/atomic"
)

// mostNotes is the largest number of keys whose denials are noted at once.
const mostNotes = 1000

// notes has the keys that were denied lately. A denial of one of them costs a lookup and some additions.
type notes struct {
	keys   sync.Map      // of *note, by the key
	added  chan struct{} // has a token after a key was added
	missed atomic.Int64  // denials of keys that found no room

	mu    sync.Mutex // guards the fields below
	len   int        // keys
	fresh []*note    // added since the last call of news
}

// note is the denials of one key that the mover has not seen yet.
type note struct {
	key   string
	units atomic.Int64
	cost  atomic.Int64 // the largest
}

// mostUnits bounds the units of a note. Far fewer can be moved.
const mostUnits = 1 << 52

// add notes a denied call of a key.
func (n *notes) add(key string, cost int64) {
	of, ok := n.keys.Load(key)
	if !ok {
		fresh := n.enter(key)
		if fresh == nil {
			n.missed.Add(1)
			return
		}
		of = fresh
	}
	d := of.(*note)
	for was := d.cost.Load(); cost > was && !d.cost.CompareAndSwap(was, cost); {
		was = d.cost.Load()
	}
	d.units.Add(min(cost, mostUnits>>10)) // after the cost: take looks for units first
}

// take returns the denials since the last call: their units, and the largest cost.
func (d *note) take() (units, cost int64) {
	if units = min(d.units.Swap(0), mostUnits); units == 0 {
		return 0, 0 // the units of a cost come next
	}
	return units, d.cost.Swap(0)
}

// enter adds a key; nil: there is no room.
func (n *notes) enter(key string) *note {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of, ok := n.keys.Load(key); ok {
		return of.(*note)
	}
	if n.len >= mostNotes {
		return nil
	}
	d := &note{key: strings.Clone(key)} // the caller's text may be a piece of a larger one
	n.keys.Store(d.key, d)
	n.len++
	n.fresh = append(n.fresh, d)
	select {
	case n.added <- struct{}{}:
	default:
	}
	return d
}

// news returns the keys that were added since the last call.
func (n *notes) news() []*note {
	n.mu.Lock()
	defer n.mu.Unlock()
	fresh := n.fresh
	n.fresh = nil
	return fresh
}

// remove forgets a key. A denial at the same moment may not be noted.
func (n *notes) remove(d *note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keys.Delete(d.key)
	n.len--
}

// size returns the number of keys.
func (n *notes) size() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.len
}
