package local

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// ahead records the bookings of a bucket, from the first reservation of a key on.
//
// A caller that books units before they have refilled gets a time. A cancelled booking without later ones gives back
// all its units. Later bookings keep their times. So a cancelled booking before them gives back only the units that
// they have not booked ahead, as a reservation of golang.org/x/time/rate does. If all came back, a new call could take
// a whole burst at the time of the later bookings. The rest is a gap. It comes back when all bookings behind it are
// cancelled.
type ahead struct {
	given float64 // units given back so far: see tokens.undo
	tail  int64   // units booked ahead so far, less units cancelled at the end
	base  int64   // the smallest tail: another call has taken units at this position
	gaps  []gap   // from base on, in order, none adjacent
}

// gap is a run of adjacent bookings that were cancelled while others stood behind them. from and to are positions of
// the tail. kept is the number of units that have not come back.
type gap struct{ from, to, kept int64 }

// seal separates later bookings from earlier ones.
func (a *ahead) seal() { a.base, a.gaps = a.tail, nil }

// join adds n units that have not refilled yet. first: all units before them had.
func (a *ahead) join(n int64, first bool) {
	if first {
		a.seal()
	}
	a.tail += n
}

// leave returns the largest number of units that come back for a receipt, including the gaps that are now at the end.
// debt: the level is below zero.
func (a *ahead) leave(r receipt, debt bool) int64 {
	if !debt {
		a.seal()
	}
	from := r.tail - r.n
	if !r.ahead || r.tail != a.tail || from < a.base {
		return max(0, r.n-(a.tail-r.tail))
	}
	n := r.n
	for i := len(a.gaps) - 1; i >= 0 && a.gaps[i].to == from; i-- {
		from, n, a.gaps = a.gaps[i].from, n+a.gaps[i].kept, a.gaps[:i]
	}
	a.tail = from
	return n
}

// gap records that back units came back for a receipt, unless it was the last one.
func (a *ahead) gap(r receipt, back float64) {
	from := r.tail - r.n
	if !r.ahead || r.tail > a.tail || from < a.base {
		return
	}
	i, _ := slices.BinarySearchFunc(a.gaps, from, func(g gap, from int64) int { return cmp.Compare(g.from, from) })
	g, first, last := gap{from, r.tail, max(0, r.n-int64(math.Ceil(back-1e-9)))}, i, i
	if i > 0 && a.gaps[i-1].to == g.from {
		first--
		g.from, g.kept = a.gaps[first].from, g.kept+a.gaps[first].kept
	}
	if i < len(a.gaps) && a.gaps[i].from == g.to {
		last++
		g.to, g.kept = a.gaps[i].to, g.kept+a.gaps[i].kept
	}
	a.gaps = slices.Replace(a.gaps, first, last, g)
}

// receipt has the data that Cancel needs.
type receipt struct {
	mark
	n     int64
	book  *ahead  // of a bucket
	given float64 // of book, at the time
	tail  int64   // of book, with these units
	ahead bool    // the units had not refilled yet
}

// receipt returns the receipt of n units just taken. later: they had not refilled yet.
func (e *entry) receipt(now time.Duration, n int64, later bool) receipt {
	r := receipt{mark: e.state.mark(e.plan, now), n: n}
	if !bucket(e.plan.limit.Algorithm) {
		return r
	}
	if e.book == nil {
		e.write().book = new(ahead)
	}
	if r.ahead = later; later {
		e.book.join(n, r.level+float64(n) >= 0)
	} else {
		e.book.seal()
	}
	r.book, r.given, r.tail = e.book, e.book.given, e.book.tail
	return r
}

func (e *entry) undo(now time.Duration, r receipt) {
	if r.book == nil {
		e.state.undo(e.plan, now, r.mark, 0, r.n)
		return
	}
	if e.book != r.book { // the limit has changed: the highest level since is unknown
		return
	}
	debt := e.state.mark(e.plan, now).level < 0
	back := e.state.undo(e.plan, now, r.mark, e.book.given-r.given, e.book.leave(r, debt))
	e.book.gap(r, back)
	e.book.given += back
}
