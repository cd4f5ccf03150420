package shed

import (
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/priority"
)

const (
	// tick is the time between two changes of the cut.
	tick = 100 * time.Millisecond
	// hold is the time without a call that found no place after which the cut
	// falls.
	hold      = time.Second
	holdTicks = int(hold / tick)
	// perClass is the number of levels of a priority of failsafe-go.
	perClass = 100
	// memory is the number of recent calls whose levels are known. With 10 000
	// the sampling error of a share is at most 0.5 % (one standard deviation).
	memory = 10_000
)

// cut is the part of the calls below the first class that is shed: the calls with
// the lowest levels. The levels of a class lie below those of the classes above, so
// a class is shed wholly before the class above is touched.
type cut struct {
	tracker priority.LevelTracker // of the calls that arrived, shed ones included
	step    float64               // change in a tick
	levels  int                   // of all classes below the first
	seen    atomic.Int64          // calls that arrived
	below   atomic.Int64          // calls with a level below are shed
	noRoom  atomic.Int64          // calls that found no place, since the last tick

	share atomic.Pointer[float64] // the shed part, 0 to 1; written by move only
	quiet int                     // ticks without a call that found no place; of move
}

// newCut returns a cut for a number of classes below the first.
func newCut(step float64, classes int) *cut {
	c := &cut{tracker: priority.NewLevelTracker(memory), step: step * tick.Seconds(), levels: classes * perClass}
	c.share.Store(new(float64))
	return c
}

// sheds counts a call of this level, and reports whether it is shed.
func (c *cut) sheds(level int) bool {
	c.tracker.RecordLevel(level)
	c.seen.Add(1)
	return int64(level) < c.below.Load()
}

// move changes the share by one step: up if a call found no place since the last
// tick, down if none did for the time of hold and a place is free. It is called once
// per tick, by one goroutine.
func (c *cut) move(free bool) {
	share := *c.share.Load()
	if c.noRoom.Swap(0) > 0 {
		share, c.quiet = min(1, share+c.step), 0
	} else if c.quiet++; c.quiet > holdTicks && free {
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

// back estimates the time until the cut has left the levels below top, if it falls
// from now on. It takes the calls as spread evenly over the levels.
func (c *cut) back(top int) time.Duration {
	below := int(c.below.Load())
	if below <= top {
		return hold
	}
	over := *c.share.Load() * float64(below-top) / float64(below)
	return hold + time.Duration(over/c.step*float64(tick))
}
