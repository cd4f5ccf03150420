package local

import (
	"hash/maphash"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// entry holds the data of a key. It is the first part of a kept, and takes 96 bytes.
type entry struct {
	long string // the key, if it has more than shortKey bytes
	own  *plan  // from LimitFor; nil if that is the limiter's limit
	book *ahead // the bookings of a bucket; nil before the first

	// A decision reads the fields from here on, and writes those at the end and the
	// state behind them: mostly one cache line.
	short [shortKey]byte // the key, if size is not 0
	plan  *plan          // the limit in force: that of the last call
	state state          // in the same kept
	at    uint32         // its place in the ring
	size  uint8
	used  bool          // since the hand of the ring passed it last: see keys
	asked refresh.Mark  // the next question to LimitFor
	seen  time.Duration // shard time of the last call
}

// shortKey is the longest key, in bytes, that lies inside its entry. Comparing such a
// key touches no other memory.
const shortKey = 24

// kept is an entry with the state of its algorithm, in one piece of memory.
type kept[S any] struct {
	entry

	of S
}

// newEntry returns an unused entry under p, the limit of the first call. It has no name
// yet.
func newEntry(p, own *plan) *entry {
	var e *entry
	switch p.limit.Algorithm {
	case hybridlimit.AlgLeakyQueue:
		k := new(kept[queue])
		e, k.state = &k.entry, &k.of
	case hybridlimit.AlgFixedWindow:
		k := new(kept[fixed])
		e, k.state = &k.entry, &k.of
	case hybridlimit.AlgSlidingWindow:
		k := new(kept[sliding])
		e, k.state = &k.entry, &k.of
	case hybridlimit.AlgSlidingLog:
		k := new(kept[journal])
		e, k.state = &k.entry, &k.of
	default:
		k := &kept[tokens]{of: tokens{level: float64(p.burst)}}
		e, k.state = &k.entry, &k.of
	}
	e.plan, e.own = p, own
	return e
}

// name sets the key of an entry. It copies the key: the caller's string may share memory
// with a request or a buffer.
func (e *entry) name(key string) {
	if len(key) > shortKey {
		e.long = strings.Clone(key)
		return
	}
	e.size = uint8(copy(e.short[:], key))
}

// is reports whether the entry is the key's.
func (e *entry) is(key string) bool {
	if len(key) > shortKey {
		return e.long == key
	}
	return int(e.size) == len(key) && string(e.short[:len(key)]) == key
}

// hash returns the hash of the entry's key.
func (e *entry) hash(seed maphash.Seed) uint64 {
	if e.size > 0 {
		return maphash.Bytes(seed, e.short[:e.size])
	}
	return maphash.String(seed, e.long)
}

// use makes p the limit in force.
func (e *entry) use(p *plan, now time.Duration) {
	if e.plan != p {
		e.turn(p, now)
	}
}

func (e *entry) turn(p *plan, now time.Duration) {
	if e.plan.limit != p.limit {
		e.state.change(e.plan, p, now)
		e.book = nil
	}
	e.plan = p
}

// by sets the request of the units taken next. Only logs use it.
func (e *entry) by(request string) {
	if j, ok := e.state.(*journal); ok {
		j.request = request
	}
}

func (e *entry) look(now time.Duration, n int64) look { return e.state.look(e.plan, now, n) }

// fresh reports whether the key has the state of an unused one.
func (e *entry) fresh(now time.Duration) bool { return e.look(now, 0).reset == 0 }

func (e *entry) refund(now time.Duration, n int64) {
	if back := e.state.refund(e.plan, now, n); e.book != nil {
		e.book.given += back
	}
}

// charge takes units, whether they are available or not. It separates the bookings
// after it from the bookings before it.
func (e *entry) charge(now time.Duration, n int64) {
	if e.book != nil {
		e.book.seal()
	}
	e.state.charge(e.plan, now, n)
}
