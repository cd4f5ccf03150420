package local

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// state is what a key has used, in the terms of one algorithm. Its methods are
// the arithmetic: the answer and the next state follow from the state, the plan,
// now and n. None reads a clock, and now never goes back. 1 ≤ n, and n ≤
// p.burst but for charge and refund.
type state interface {
	// take takes n units if they are there, and says how long to wait before
	// they may be used.
	take(p *plan, now time.Duration, n int64) (delay time.Duration, ok bool)
	// decide is take, and then a look, for n if there was nothing to take.
	decide(p *plan, now time.Duration, n int64) (delay time.Duration, ok bool, seen look)
	// look changes nothing that can be seen. retry is for n, 0 for n = 0.
	look(p *plan, now time.Duration, n int64) look
	// book takes n units that will be there within most.
	book(p *plan, now time.Duration, n int64, most time.Duration) booking
	// charge takes n units whether they are there or not, down to a burst of
	// debt.
	charge(p *plan, now time.Duration, n int64)
	// refund gives n units back, up to what is full, and says how many were.
	refund(p *plan, now time.Duration, n int64) float64
	// mark is what undo must know, taken right after the units were.
	mark(p *plan, now time.Duration) mark
	// undo makes it as if n units had not been taken at m, or less, and says
	// how many were given back. given is what else was given back since.
	undo(p *plan, now time.Duration, m mark, given float64, n int64) float64
	// change goes from one limit to another.
	change(from, to *plan, now time.Duration)
}

// look is what there is to tell of a key.
type look struct {
	room  int64         // the largest n that would be taken, 0 in debt
	retry time.Duration // until n would be taken
	reset time.Duration // until the key is as if never used
}

// booking is the answer to book.
type booking struct {
	delay time.Duration // until the units are there, if nothing else is taken
	retry time.Duration // if not ok: until the same could be booked; 0 if only most stands against it
	ok    bool
}

// mark is the time at which units were taken, and what of the state that time
// left. Each algorithm needs some of it.
type mark struct {
	at    time.Duration
	level float64 // units left, of a bucket
	turns *turns  // of a queue
	tail  int64
	until time.Duration // end of the window; when units leave a log
	by    string        // of a log: the request that took them
}

// newState is a key that was never used.
func newState(p *plan) state {
	switch p.limit.Algorithm {
	case hybridlimit.AlgLeakyQueue:
		return new(queue)
	case hybridlimit.AlgFixedWindow:
		return new(fixed)
	case hybridlimit.AlgSlidingWindow:
		return new(sliding)
	case hybridlimit.AlgSlidingLog:
		return new(journal)
	default:
		return newTokens(p)
	}
}

// static reports whether an algorithm counts nothing: it admits all, or none, and
// no key is held for it.
func static(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgUnlimited || a == hybridlimit.AlgBlocked
}

// offered reports whether newState has the algorithm, or it needs no state.
func offered(a hybridlimit.Algorithm) bool { return a <= hybridlimit.AlgSlidingLog || static(a) }

// onRateLimiter reports whether newState makes tokens of it.
func onRateLimiter(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgTokenBucket || a == hybridlimit.AlgLeakyBucket
}

// decideBy is decide for algorithms that have nothing to gain by doing both at
// once.
func decideBy(s state, p *plan, now time.Duration, n int64) (time.Duration, bool, look) {
	delay, ok := s.take(p, now, n)
	if ok {
		n = 0
	}
	return delay, ok, s.look(p, now, n)
}

// bookNow is book for algorithms in which the future cannot be had today.
func bookNow(s state, p *plan, now time.Duration, n int64) booking {
	if _, ok := s.take(p, now, n); ok {
		return booking{ok: true}
	}
	wait := s.look(p, now, n).retry
	return booking{delay: wait, retry: wait}
}
