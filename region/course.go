package region

import (
	"math"
	"time"
)

// course is what a process does to bring units of one key into its region. It is pure: time is an argument, in ns of a
// monotonic clock. The shell (mover.go) calls one method per event:
//
//	deny       a call was denied
//	permitted  the permit of the key was got
//	ask        units are asked for in other regions
//	answer     a region has answered; failed: it has not
//	landed     Redis knows of the units that were given
//
// The permit excludes other processes of the region. The units that are asked for, and those given whose landing is not
// known, are at most the escrow of the region together.
type course struct {
	terms  *terms
	denied float64 // units of denied calls since the last ask
	cost   int64   // the largest cost among them
	last   int64   // ns; the last denial

	permit int64 // ns; the permit was asked for at that time; 0: there is none
	asked  int64 // ns; the last ask
	open   int   // asks without an answer
	flying int64 // units that are asked for, or given and not known to have landed
	given  int64 // of these, units given
	came   int64 // units given since the last ask
	donors []donor
}

// donor is another region, as this process knows it for one key.
type donor struct {
	asked int64         // units of the ask without an answer; 0: there is none
	wait  time.Duration // between two asks while it has nothing
	until int64         // ns; it is not asked before
	left  float64       // units above its quarter at the last answer
	at    int64         // ns; the last answer; 0: there was none
}

// terms are the same for all keys.
type terms struct {
	burst  int64 // of the region here
	under  int64 // units that may be under way to the region here
	donors []donorTerms
}

type donorTerms struct {
	floor int64   // its quarter: units that it keeps
	spare int64   // units above it, of a full bucket
	perNs float64 // units that it refills in a ns
}

const (
	// askEvery is the shortest time between two asks for a key: at most twelve messages a second and region.
	askEvery = 85 * time.Millisecond
	// askFor bounds an ask. A later answer is not used.
	askFor = 300 * time.Millisecond
	// permitFor is the time from the request for a permit in which asks begin, and staleAfter that in which units are
	// given. A process that is cut off from its Redis, or does not run, is a member for 0.8 s at least.
	permitFor  = 400 * time.Millisecond
	staleAfter = 750 * time.Millisecond
	// backoff and backoffMost bound the time in which a region without units is left alone.
	backoff     = 100 * time.Millisecond
	backoffMost = time.Second
	// notedFor is the time for which units are wanted after a denial.
	notedFor = time.Second
	// fewer is the part of the last units that is asked for without a denial.
	fewer = 0.9
)

func newCourse(t *terms) *course { return &course{terms: t, donors: make([]donor, len(t.donors))} }

// deny notes denied calls: together for units, the largest for cost.
func (c *course) deny(units float64, cost, now int64) {
	c.denied += units
	c.cost, c.last = max(c.cost, cost), now
}

// wants reports whether units are wanted. left is the number of units here. After a denial they are wanted as long as
// they come and are used up: with the next denial they would come too late.
func (c *course) wants(left, now int64) bool {
	return now-c.last < int64(notedFor) && (c.denied > 0 || c.came > 0 && 2*left < c.terms.burst)
}

// leave makes a region not be asked before a time.
func (c *course) leave(i int, until int64) { c.donors[i].until = max(c.donors[i].until, until) }

// idle reports whether nothing is under way.
func (c *course) idle() bool { return c.open == 0 && c.flying == 0 }

// permitted notes a permit that was asked for at a time.
func (c *course) permitted(at int64) { c.permit = at }

// mayAsk reports whether the next ask may begin, if there is a permit.
func (c *course) mayAsk(left, now int64) bool { return c.due(now) && c.wants(left, now) }

// due reports whether the next ask may begin if units are wanted, and there is a permit.
func (c *course) due(now int64) bool {
	if !c.idle() || now-c.last >= int64(notedFor) || c.asked != 0 && now-c.asked < int64(askEvery) {
		return false
	}
	for _, d := range c.donors {
		if now >= d.until {
			return true
		}
	}
	return false
}

// spent reports whether the permit must go back before the next ask.
func (c *course) spent(now int64) bool { return now-c.permit >= int64(permitFor) }

// ask returns the units to ask each region for. left is as for wants. processes is the number of those of the region,
// whose calls are denied too.
func (c *course) ask(left, processes, now int64) []int64 {
	asks := make([]int64, len(c.donors))
	if c.permit == 0 || c.spent(now) || !c.mayAsk(left, now) {
		return asks
	}
	// Units that came and were used up are wanted again: without them, as many calls would have been denied. Without a
	// denial, a few less.
	again := 0.0
	if now-c.asked < int64(notedFor) {
		again = float64(c.came)
	}
	if c.denied == 0 {
		again *= fewer
	}
	want := math.Max(float64(c.cost), c.denied*float64(processes)+again)
	want = min(want, float64(c.terms.under), float64(c.terms.burst-max(0, left)))
	c.came = 0
	sum := 0.0
	for i := range c.donors {
		sum += c.likely(i, now)
	}
	rest := int64(want)
	for i := range c.donors {
		part := 0.0
		if sum > 0 {
			part = math.Ceil(want * c.likely(i, now) / sum)
		}
		n := min(rest, int64(part))
		if n < 1 {
			continue
		}
		asks[i], c.donors[i].asked = n, n
		rest, c.flying, c.open = rest-n, c.flying+n, c.open+1
	}
	if c.open > 0 {
		c.asked, c.denied, c.cost = now, 0, 0
	}
	return asks
}

// likely returns the units that a region may have above its quarter; 0: it is not asked.
func (c *course) likely(i int, now int64) float64 {
	d, t := &c.donors[i], c.terms.donors[i]
	switch {
	case now < d.until:
		return 0
	case d.at == 0:
		return float64(t.spare)
	}
	return math.Max(1, math.Min(float64(t.spare), d.left+t.perNs*float64(now-d.at)))
}

// answer books the answer of a region: the units that it granted, and those left above its quarter. It returns the
// units to give. Units of an old permit are dropped, because the permit may be another's.
func (c *course) answer(i int, granted, left, now int64) (give int64) {
	d := &c.donors[i]
	c.flying, c.open = c.flying-d.asked, c.open-1
	if granted = min(granted, d.asked); granted < 1 {
		c.refused(d, now)
	} else {
		d.wait, d.until = 0, 0
	}
	d.asked, d.left, d.at = 0, float64(left), now
	if now-c.permit >= int64(staleAfter) {
		return 0
	}
	c.flying, c.given, c.came = c.flying+granted, c.given+granted, c.came+granted
	return granted
}

// failed books an ask without an answer. If its units were taken, they are lost.
func (c *course) failed(i int, now int64) {
	d := &c.donors[i]
	c.flying, c.open = c.flying-d.asked, c.open-1
	d.asked = 0
	c.refused(d, now)
}

func (c *course) refused(d *donor, now int64) {
	d.wait = min(max(backoff, 2*d.wait), backoffMost)
	d.until = now + int64(d.wait)
}

// landed notes that Redis knows of all units given, or never will.
func (c *course) landed() { c.flying, c.given = c.flying-c.given, 0 }
