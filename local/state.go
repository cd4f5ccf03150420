package local

import (
	"cmp"
	"slices"
	"time"
)

// state is the usage of a key under one algorithm. Its methods are the arithmetic: the answer and the next state follow
// from the state, the plan, now and n. None reads a clock, and now never decreases. n is from 1 to p.burst; charge and
// refund take any n from 1.
type state interface {
	// advance brings the state to now. It comes before all others, also before change.
	advance(p *plan, now time.Duration)
	// take takes n units if they are available within most. Only buckets and queues can take units of the future.
	take(p *plan, now time.Duration, n int64, most time.Duration) booking
	// look takes nothing. retry is for n, and 0 for n = 0.
	look(p *plan, now time.Duration, n int64) look
	// charge takes n units, available or not, down to a burst of debt.
	charge(p *plan, now time.Duration, n int64)
	// refund gives n units back, at most until the key is full, and returns their number.
	refund(p *plan, now time.Duration, n int64) float64
	// mark returns the data that undo needs. It is called directly after the units were taken.
	mark(p *plan, now time.Duration) mark
	// undo gives back the n units taken at m, or fewer, and returns their number. given is the number of other units
	// given back since.
	undo(p *plan, now time.Duration, m mark, given float64, n int64) float64
	// change goes from one limit to another.
	change(from, to *plan, now time.Duration)
}

// look is the answer of a key.
type look struct {
	room  int64         // the largest n that would be taken, 0 in debt
	retry time.Duration // until n would be taken
	reset time.Duration // until the key has the state of an unused one
}

// booking is the answer to take. If not ok, windows and logs leave the times to look.
type booking struct {
	ok    bool
	delay time.Duration // until the units are available, if nothing else is taken
	retry time.Duration // if not ok: until the same could be taken; 0 if only most prevents it
}

// mark is the time at which units were taken, and parts of the state directly after. Each algorithm needs some of them.
type mark struct {
	at    time.Duration
	level float64 // units left, of a bucket
	turns *turns  // of a queue
	tail  int64
	until time.Duration // end of the window; when units leave a log
	by    string        // of a log: the request that took them
}

// turns identifies places in a queue by the position of its tail, in sub-units, before and after they were taken.
type turns struct {
	tail int64
	gaps gaps // at most Burst
}

// gaps are cancelled bookings with other bookings behind them, in their order.
type gaps []gap

// gap is a cancelled booking. from and to are positions of the tail. kept is the number of units that have not come
// back, in a bucket.
type gap struct{ from, to, kept int64 }

// add adds a gap.
func (gs *gaps) add(g gap) {
	i, _ := slices.BinarySearchFunc(*gs, g.from, func(g gap, from int64) int { return cmp.Compare(g.from, from) })
	*gs = slices.Insert(*gs, i, g)
}

// close removes the gaps that end at to, one before the other. It returns their begin, and the units that they kept.
func (gs *gaps) close(to int64) (from, kept int64) {
	for i := len(*gs) - 1; i >= 0 && (*gs)[i].to == to; i-- {
		to, kept = (*gs)[i].from, kept+(*gs)[i].kept
		*gs = (*gs)[:i]
	}
	return to, kept
}
