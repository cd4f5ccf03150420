package shed

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/priority"
)

const (
	// tick is the time between two changes of the cut.
	tick = 100 * time.Millisecond
	// hold is the time without a call that found no place after which the cut falls although places are scarce.
	hold      = time.Second
	holdTicks = int(hold / tick)
	// lasting is the time since places were plenty after which the cut rises. Until then the wait for a place is
	// enough, so a dependency that flaps moves nothing.
	lasting      = 5 * time.Second
	lastingTicks = int(lasting / tick)
	// Places are plenty once every call of two whole ticks has found a free place, and the free parts of the places
	// that they found add up to plenty percent. Ten calls that find all places free have it. A full process has moments
	// in which a place is free, but few of its calls in a row find one.
	plenty      = 1000
	plentyTicks = 2
	// doubling is the number of ticks with plenty of places after which the cut falls twice as fast.
	doubling = 20
	// perClass is the number of levels of a priority of failsafe-go.
	perClass = 100
	// memory is the number of recent calls whose levels are known. With 10 000 the sampling error of a share is at most
	// 0.5 % (one standard deviation).
	memory = 10_000
)

// cut is the part of the calls below the first class that is shed: the calls with the lowest levels. The levels of a
// class lie below those of the classes above, so a class is shed wholly before the class above is touched.
type cut struct {
	tracker priority.LevelTracker // of the calls that arrived, shed ones included
	step    float64               // change in a tick
	levels  int                   // of all classes below the first
	seen    atomic.Int64          // calls that arrived
	below   atomic.Int64          // calls with a level below are shed

	// Since the last tick:
	noRoom atomic.Int64 // calls that were shed after their wait
	full   atomic.Int64 // calls that came while no place was free
	found  atomic.Int64 // sum of the free parts of the places that calls found, in percent

	share atomic.Pointer[float64] // the shed part, 0 to 1; written by move only

	// Of move:
	quiet  int   // ticks without a call that was shed after its wait
	open   int   // ticks in which every call found a free place
	room   int64 // sum of found in these ticks
	scarce int   // ticks since places were plenty
	falls  int   // ticks with plenty of places since the last rise
}

// newCut returns a cut for a number of classes below the first.
func newCut(step float64, classes int) *cut {
	c := &cut{tracker: priority.NewLevelTracker(memory), step: step * tick.Seconds(), levels: classes * perClass}
	c.scarce = lastingTicks // nothing is known yet: a process may start under load
	c.share.Store(new(float64))
	return c
}

// sheds counts a call of this level, and reports whether it is shed.
func (c *cut) sheds(level int) bool {
	c.tracker.RecordLevel(level)
	c.seen.Add(1)
	return int64(level) < c.below.Load()
}

// note counts a call of any class that came while so many places of a limit were free.
func (c *cut) note(free, limit int64) {
	if free <= 0 {
		c.full.Add(1)
		return
	}
	c.found.Add(100 * free / max(free, limit))
}

// move changes the share. It is called once per tick, by one goroutine.
//   - A call was shed after its wait: up by a step, if places have been scarce for the
//     time of lasting.
//   - Places are plenty: down by a step at first, and faster with each tick.
//   - Places are scarce: down by a step, if no call was shed after its wait for the
//     time of hold, and a place is free.
func (c *cut) move(free bool) {
	share, noRoom := *c.share.Load(), c.noRoom.Swap(0) > 0
	if full, found := c.full.Swap(0) > 0, c.found.Swap(0); full || noRoom {
		c.open, c.room = 0, 0
	} else {
		c.open, c.room = c.open+1, c.room+found
	}
	c.quiet, c.scarce = c.quiet+1, c.scarce+1
	switch {
	case noRoom:
		c.quiet = 0
		if c.scarce > lastingTicks {
			share, c.falls = min(1, share+c.step), 0
		}
	case c.open >= plentyTicks && c.room >= plenty:
		share = max(0, share-c.step*math.Exp2(float64(c.falls)/doubling))
		c.scarce, c.falls = 0, c.falls+1
	case c.quiet > holdTicks && free:
		share = max(0, share-c.step)
	}
	var below int
	switch {
	case share == 1:
		below = c.levels // GetLevel(1) would spare the highest level
	case share*float64(c.seen.Load()) >= 1: // else GetLevel would take the lowest level of few calls
		below = c.tracker.GetLevel(share)
	}
	c.share.Store(&share)
	c.below.Store(int64(below))
}

// back estimates the time until the cut has left the levels below top, if places are plenty from now on. It takes the
// calls as spread evenly over the levels.
func (c *cut) back(top int) time.Duration {
	below := int(c.below.Load())
	if below <= top {
		return hold
	}
	over := *c.share.Load() * float64(below-top) / float64(below)
	ticks := doubling * math.Log2(1+over/c.step*(math.Exp2(1.0/doubling)-1)) // the falls are a geometric series
	return hold + time.Duration(ticks*float64(tick))
}
