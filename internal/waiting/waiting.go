// Package waiting implements Wait for limiters that book units in Redis: it books units, waits until they may be used,
// and gives them back if the wait fails. It makes no decisions and does not call Redis itself.
package waiting

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// Caller describes a waiting call.
type Caller struct {
	Package string          // the package, for errors
	Key     string          // the key, for errors
	N       int64           // units, for errors
	Done    <-chan struct{} // closed with the limiter
	Longest time.Duration   // the longest wait without a deadline
	Lines   *Lines          // of the limiter
	Each    *time.Duration  // time in which a unit comes back; Book may set it; 0: not known
	// Turn returns the time in which each process of the fleet gets a unit, and the time in which a burst comes back,
	// or 0 if unused units do not add up. A process that was served waits for its next turn. Nil: there is one process.
	Turn func() (round, burst time.Duration)
}

// Book takes the caller's units if they may be used within most. back gives them back. Nil: nothing was taken.
type Book func(most time.Duration) (res hybridlimit.Result, back func(context.Context) error, err error)

// Wait books units and waits until they may be used. After a denial it books again when the units are there. It fails
// at once if it cannot meet the deadline of ctx (context.DeadlineExceeded), or if the cost is above the burst
// (hybridlimit.ErrExceedsBurst). If the wait fails, Wait gives the units back; if that fails too, the error joins both.
//
// Calls for one key are served in the order in which they came.
func (c Caller) Wait(ctx context.Context, book Book) (hybridlimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return hybridlimit.Result{}, err
	}
	p := place{caller: c}
	defer p.leave()
	if c.Lines.waiting(c.Key) { // otherwise the call may be served at once, without a place
		if _, err := p.join(ctx); err != nil {
			return hybridlimit.Result{}, err
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return hybridlimit.Result{}, err
		}
		left := c.Longest
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
		}
		began := time.Now()
		res, back, err := book(left)
		if err != nil {
			return hybridlimit.Result{}, err
		}
		wait, trip := res.RetryAfter, time.Since(began)
		if res.Allowed {
			wait = res.Delay
			p.served(wait, trip, res.Remaining)
		}
		switch {
		case wait == hybridlimit.Never:
			err = fmt.Errorf("%s: cost %d of key %q: %w (%d)", c.Package, c.N, c.Key, hybridlimit.ErrExceedsBurst, res.Limit)
		case wait >= left:
			err = fmt.Errorf("%s: it takes %v until %d units of key %q are available: %w", c.Package, wait, c.N, c.Key, context.DeadlineExceeded)
		case res.Allowed:
			err = Sleep(ctx, c.Done, wait)
		default:
			err = p.denied(ctx, wait, trip)
		}
		switch {
		case err != nil && back != nil:
			c.Lines.forget(c.Key)
			return hybridlimit.Result{}, errors.Join(err, back(context.WithoutCancel(ctx)))
		case err != nil:
			return res, err
		case res.Allowed:
			res.Delay = 0
			return res, nil
		}
	}
}

// Processes ask again in this order when a unit is there: those that were denied often, those that were denied once,
// and half a unit later the one that was served last. Otherwise one process could be the first each time, and another
// one never. No unit is lost: without other processes, the level rises by less than a burst meanwhile. The next ask
// takes a round trip, so it leaves that much earlier.

// place is the place of a call in the line of its key, if it has one.
type place struct {
	caller  Caller
	line    *line // nil: none yet
	turn    *turn
	denials int
}

// join takes a place and waits for the turn of the call. It reports whether the call was the first at once.
func (p *place) join(ctx context.Context) (first bool, err error) {
	deadline, _ := ctx.Deadline()
	p.line, p.turn = p.caller.Lines.join(p.caller.Key, p.caller.N, deadline)
	first = p.turn.ready == nil
	if err := p.caller.turn(ctx, p.turn); err != nil {
		return first, err
	}
	pause := p.caller.Lines.pause(p.line)
	if !deadline.IsZero() && time.Until(deadline) <= pause {
		return first, nil // an answer at least says whether the deadline can be met
	}
	return first, Sleep(ctx, p.caller.Done, pause)
}

// leave gives the place up. It works once.
func (p *place) leave() {
	if p.line != nil {
		p.caller.Lines.leave(p.caller.Key, p.line, p.turn)
	}
}

// served gives the place up for the next call, when units were booked that are there in wait. left is the number of
// units that are there still.
func (p *place) served(wait, trip time.Duration, left int64) {
	c := p.caller
	if p.line != nil {
		c.Lines.tell(p.line, wait, *c.Each)
	}
	if c.Turn != nil {
		if pause := c.next(wait, trip, left); pause > 0 {
			c.Lines.yield(c.Key, p.line, pause)
		}
	}
	p.leave()
}

// denied waits until the call may ask again. A call without a place takes one.
func (p *place) denied(ctx context.Context, wait, trip time.Duration) error {
	if p.line == nil {
		if first, err := p.join(ctx); err != nil || !first {
			return err
		}
	}
	c := p.caller
	c.Lines.tell(p.line, wait, *c.Each)
	p.denials++
	return Sleep(ctx, c.Done, c.again(wait, trip, p.denials-1))
}

// next returns the time after which the process asks again when a call was served, whose units are there in wait. 0: at
// once, because there is a unit for each process, or no other process. Until then units add up to a burst at most, of
// which the last one is for the half unit that the process comes later. A shorter time would let a process that asks
// when the others have booked least get more than they.
func (c Caller) next(wait, trip time.Duration, left int64) time.Duration {
	round, burst := c.Turn()
	there := time.Duration(0) // in which the units come back that are there
	if wait == 0 {
		there = time.Duration(left) * *c.Each
	}
	if round <= max(there, *c.Each) {
		return 0
	}
	burst -= there
	pause := min(round, wait+max(0, burst-*c.Each), longestPause) + min(max(c.step()/2, trip), burst)
	if wait == 0 { // no process has booked these units, and each takes as many of them: a longer round gives more to the first one
		pause = min(pause, round)
	}
	return pause - trip
}

// longestPause bounds the time that a process leaves to others: the limit may change meanwhile, and units may be given
// back.
const longestPause = time.Second

// step returns the time in which a unit comes back, of which processes wait for parts to come one after the other.
func (c Caller) step() time.Duration { return min(*c.Each, longestPause) }

// again returns the time after which a call asks again that was denied, after a number of denials before.
func (c Caller) again(wait, trip time.Duration, denials int) time.Duration {
	after := trip // random, so that the order is not always the same
	least := time.Duration(0)
	if c.Turn != nil {
		if round, _ := c.Turn(); round > *c.Each { // there are other processes
			least = c.step() >> min(denials+2, 62)
			after = least
		}
	}
	return max(0, wait-trip) + least + mrand.N(after+1)
}

// Sleep waits for d. It returns early, with an error, if ctx ends (the error of ctx) or done is closed
// (hybridlimit.ErrClosed).
func Sleep(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return hybridlimit.ErrClosed
	}
}
