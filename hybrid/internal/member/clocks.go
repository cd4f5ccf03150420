package member

import (
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// redisClock measures how far the clock of a Redis is ahead of the hub's: the lead. Windows end by Redis's clock. All
// answers use this lead, so they name the same end, independent of the key and the sync. An answer proves two bounds:
// the lead is at least Redis's time minus the time of receipt, and at most Redis's time minus the time of sending.
// The lead starts at the lower bound, so that windows end a little late, and moves only when a bound proves it wrong.
// most is the upper bound of the answer whose request was the quickest. The zero value knows nothing.
type redisClock struct {
	lead  atomic.Int64 // ns
	most  atomic.Int64 // ns
	known atomic.Bool
}

// heard notes Redis's time (µs) in an answer, and reports whether the answer is the first.
func (c *redisClock) heard(redisNow, sent, received int64) (first bool) {
	least, most := redisNow*1000-received, redisNow*1000+999-sent
	lead, known := c.lead.Load(), c.known.Load()
	if !known || lead < least {
		lead = least
	} else if lead > most { // Redis's clock was set back
		lead = most
	}
	c.lead.Store(lead)
	if was := c.most.Load(); !known || was > most || was < lead {
		c.most.Store(most)
	}
	return !c.known.Swap(true)
}

// windowEnd returns the end of the window that contains now; 0: not known.
func (c *redisClock) windowEnd(w algo.Window, now int64) int64 {
	if !c.known.Load() || w.Period <= 0 {
		return 0
	}
	lead := c.lead.Load()
	if w.Calendar {
		if end := w.Ends((now + lead) / 1000); end > 0 {
			return end*1000 - lead
		}
		return 0
	}
	period := w.Period * 1000
	return now + period - (now+lead)%period
}

// at converts a time of Redis (µs) to the hub's clock. It returns the latest time that the quickest answer so far
// permits. Call heard first.
func (c *redisClock) at(redisNow int64) int64 { return redisNow*1000 - c.lead.Load() }

// Clocks holds the clocks of the Redis servers that have the tags' keys: one in all, or one per tag.
type Clocks struct {
	of   []redisClock
	some atomic.Int64 // index of a known clock, once there is one
}

// At returns the time on the hub's clock at which Redis read its time, kept between sent and received.
func (c *Clocks) At(tag int, redisNow, sent, received int64) int64 {
	return max(sent, min(c.of[c.index(tag)].at(redisNow), received))
}

func (c *Clocks) index(tag int) int { return tag % len(c.of) }

// Heard notes the time of Redis (µs) in an answer of a tag, kept between sent and received.
func (c *Clocks) Heard(tag int, redisNow, sent, received int64) {
	i := c.index(tag)
	if c.of[i].heard(redisNow, sent, received) {
		c.some.Store(int64(i))
	}
}

// WindowEnd uses the tag's own Redis, or another known Redis of the fleet: their clocks differ by less than a period.
func (c *Clocks) WindowEnd(tag int, w algo.Window, now int64) int64 {
	if end := c.of[c.index(tag)].windowEnd(w, now); end > 0 {
		return end
	}
	return c.of[c.some.Load()].windowEnd(w, now)
}

// Redis returns the time of a tag's Redis (µs) at a time of the hub's clock. It is the earliest time that the
// quickest answer so far permits; 0: not known.
func (c *Clocks) Redis(tag int, now int64) int64 {
	r := &c.of[c.index(tag)]
	if !r.known.Load() {
		return 0
	}
	return (now + r.lead.Load()) / 1000
}

// Latest is Redis for the latest time that the answers so far permit. A message that is sent at now does not arrive
// before it.
func (c *Clocks) Latest(tag int, now int64) int64 {
	r := &c.of[c.index(tag)]
	if !r.known.Load() {
		return 0
	}
	return (now + r.most.Load()) / 1000
}

// Begin makes so many clocks. Call it once, before all other methods.
func (c *Clocks) Begin(n int) { c.of = make([]redisClock, n) }
