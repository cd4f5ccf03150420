package local

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// ahead keeps the bookings of a bucket apart, from the first reservation of a
// key on.
//
// A caller that books units before they are there is told a time. A booking that
// is cancelled with no other behind it gives back all its units. With others
// behind it, it makes room only for the units that they do not fill. They keep
// their times: if all units came back, a newcomer could take a whole burst at the
// time of the others. So of n units those come back that were not booked ahead
// since, as of a reservation of golang.org/x/time/rate. The rest is a gap, and
// comes back too when all bookings behind it are cancelled.
type ahead struct {
	given float64 // units given back so far: see tokens.undo
	tail  int64   // units booked ahead so far, less those of the end that left
	base  int64   // where tail cannot fall below: somebody else came in between
	gaps  []gap   // from base on, in order, none beside another
}

// gap is bookings side by side that were cancelled before others left: from and
// to by the tail, and how many of their units have not come back.
type gap struct{ from, to, kept int64 }

// seal parts what is booked from here on from what is booked so far.
func (a *ahead) seal() { a.base, a.gaps = a.tail, nil }

// join notes n units more that are not there yet. first: all before them were.
func (a *ahead) join(n int64, first bool) {
	if first {
		a.seal()
	}
	a.tail += n
}

// leave is how many units at most come back for those of a receipt, with gaps
// that nobody stands behind any more. debt: units are missing still.
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

// gap notes that back units came back for those of a receipt, unless it was the
// last one.
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

// A receipt is what Cancel must know.
type receipt struct {
	mark
	n     int64
	book  *ahead  // of a bucket
	given float64 // of book, at the time
	tail  int64   // of book, with these units
	ahead bool    // they were not there yet
}

// receipt is of n units that were just taken, before they were there if later.
func (e *entry) receipt(now time.Duration, n int64, later bool) receipt {
	r := receipt{mark: e.state.mark(e.plan, now), n: n}
	if !onRateLimiter(e.plan.limit.Algorithm) {
		return r
	}
	if e.book == nil {
		e.book = new(ahead)
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
	if e.book != r.book { // under another limit since: nobody knows how full it may have been
		return
	}
	debt := e.state.mark(e.plan, now).level < 0
	back := e.state.undo(e.plan, now, r.mark, e.book.given-r.given, e.book.leave(r, debt))
	e.book.gap(r, back)
	e.book.given += back
}
