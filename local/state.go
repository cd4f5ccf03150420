package local

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// state is the usage of a key under one algorithm. Its methods are the arithmetic: the answer and the next state follow
// from the state, the plan, now and n. None reads a clock, and now never decreases. n is from 1 to p.burst; charge and
// refund take any n from 1.
type state interface {
	// take takes n units if they are available. delay is the time before they may be used.
	take(p *plan, now time.Duration, n int64) (delay time.Duration, ok bool)
	// decide is take and then look. The look is for n if take failed, else for 0.
	decide(p *plan, now time.Duration, n int64) (delay time.Duration, ok bool, seen look)
	// look takes nothing. retry is for n, and 0 for n = 0.
	look(p *plan, now time.Duration, n int64) look
	// book takes n units if they are available within most.
	book(p *plan, now time.Duration, n int64, most time.Duration) booking
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

// booking is the answer to book.
type booking struct {
	delay time.Duration // until the units are available, if nothing else is taken
	retry time.Duration // if not ok: until the same could be booked; 0 if only most prevents it
	ok    bool
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

// static reports whether an algorithm counts nothing: it admits all or none, and holds no keys.
func static(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgUnlimited || a == hybridlimit.AlgBlocked
}

// offered reports whether newEntry knows the algorithm, or it needs no state.
func offered(a hybridlimit.Algorithm) bool { return a <= hybridlimit.AlgSlidingLog || static(a) }

// bucket reports whether the state of an algorithm is tokens.
func bucket(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgTokenBucket || a == hybridlimit.AlgLeakyBucket
}

// decideBy implements decide by take and look. It is for algorithms in which one combined step saves nothing.
func decideBy(s state, p *plan, now time.Duration, n int64) (time.Duration, bool, look) {
	delay, ok := s.take(p, now, n)
	if ok {
		n = 0
	}
	return delay, ok, s.look(p, now, n)
}

// bookNow implements book for algorithms that cannot take units of the future.
func bookNow(s state, p *plan, now time.Duration, n int64) booking {
	if _, ok := s.take(p, now, n); ok {
		return booking{ok: true}
	}
	wait := s.look(p, now, n).retry
	return booking{delay: wait, retry: wait}
}
