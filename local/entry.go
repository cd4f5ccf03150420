package local

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/refresh"
)

// entry holds the data of a key. It is the first part of a kept.
type entry struct {
	*rare
	plan  *plan            // the limit in force: that of the last call
	state state            // in the same kept
	asks  refresh.Deadline // the next question to LimitFor
	seen  time.Duration    // shard time of the last call
}

// rare is the part of an entry that most keys do not need.
type rare struct {
	own  *plan  // from LimitFor; nil if that is the limiter's limit
	book *ahead // the bookings of a bucket; nil before the first
}

// none is the rare part of an entry that has none. Nothing writes to it: see write.
var none rare

// write returns the rare part of the entry, to be written.
func (e *entry) write() *rare {
	if e.rare == &none {
		e.rare = new(rare)
	}
	return e.rare
}

// kept is an entry with the state of its algorithm, in one piece of memory.
type kept[S any] struct {
	entry

	of S
}

// newEntry returns an unused entry under p, the limit of the first call.
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
	e.plan, e.rare = p, &none
	if own != nil {
		e.write().own = own
	}
	return e
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
		if e.book != nil {
			e.write().book = nil
		}
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

// charge takes units, whether they are available or not. It separates the bookings after it from the bookings before
// it.
func (e *entry) charge(now time.Duration, n int64) {
	if e.book != nil {
		e.book.seal()
	}
	e.state.charge(e.plan, now, n)
}
