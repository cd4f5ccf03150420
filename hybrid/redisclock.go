package hybrid

import "sync/atomic"

// redisClock is how far the clock of a Redis is ahead of the hub's. Windows end
// by Redis's clock; all answers of one name the same end, whichever key or sync
// they are from, because they count from here. An answer shows that the lead is
// at least Redis's time less when the answer came, and at most less when the
// question left: it moves only where it is proved wrong, and else to the side of
// windows that end a little late. The zero value knows nothing.
type redisClock struct {
	lead  atomic.Int64 // ns
	known atomic.Bool
}

// heard notes Redis's time (µs) in an answer to what was sent, and reports
// whether it is the first.
func (c *redisClock) heard(redisNow, sent, received int64) (first bool) {
	least, most := redisNow*1000-received, redisNow*1000+999-sent
	lead := c.lead.Load()
	if !c.known.Load() || lead < least {
		lead = least
	} else if lead > most { // it was set back
		lead = most
	}
	c.lead.Store(lead)
	return !c.known.Swap(true)
}

// windowEnd is when the window of now ends, for a period in µs; 0: not known.
func (c *redisClock) windowEnd(period, now int64) int64 {
	if !c.known.Load() || period <= 0 {
		return 0
	}
	period *= 1000
	return now + period - (now+c.lead.Load())%period
}

// at is a time of Redis, in µs, on the hub's clock: as late as the quickest
// answer so far allows. Call heard first.
func (c *redisClock) at(redisNow int64) int64 { return redisNow*1000 - c.lead.Load() }

// redisClocks are those of the Redis that has each tag's keys: one, or one per
// tag.
type redisClocks struct {
	of   []redisClock
	some atomic.Int64 // of one that is known, once one is
}

// at is when Redis said its time, between the sending of the question and the
// receipt of the answer.
func (c *redisClocks) at(tag int, redisNow, sent, received int64) int64 {
	return max(sent, min(c.of[c.index(tag)].at(redisNow), received))
}

func (c *redisClocks) index(tag int) int { return tag % len(c.of) }

func (c *redisClocks) heard(tag int, redisNow, sent, received int64) {
	i := c.index(tag)
	if c.of[i].heard(redisNow, sent, received) {
		c.some.Store(int64(i))
	}
}

// windowEnd is by the tag's own Redis, or another of the fleet's that has been
// heard: their clocks differ by less than a period does.
func (c *redisClocks) windowEnd(tag int, period, now int64) int64 {
	if end := c.of[c.index(tag)].windowEnd(period, now); end > 0 {
		return end
	}
	return c.of[c.some.Load()].windowEnd(period, now)
}

// redis is what a tag's Redis says at a time of the hub's clock, in µs, as early
// as the quickest answer so far allows; 0: not known.
func (c *redisClocks) redis(tag int, now int64) int64 {
	r := &c.of[c.index(tag)]
	if !r.known.Load() {
		return 0
	}
	return (now + r.lead.Load()) / 1000
}
