package rlqs

import (
	"math"
	"time"
)

// A limit is allSlices. An Envoy's assignment of n slices lets it pass n/allSlices of the limit. Slices are places of
// calls in flight (hybrid.Hub.Concurrency), so that the whole fleet hands out each slice once. So many Envoys can
// have a part.
const (
	allSlices = 10_000
	// assigned is the part of a limit that is handed out: Envoy begins a changed assignment with a full bucket.
	assigned = 0.98
	// bucketFor is the size of Envoy's bucket, as time of its rate. Envoy ignores it when it compares assignments.
	bucketFor = 100 * time.Millisecond
	// quiet is the least time between two changes of an assignment, because each change fills Envoy's bucket: in this
	// time, what is not handed out pays for it.
	quiet = 5 * time.Second
	// heard is the time after which Envoy has heard of an answer, if it reports.
	heard = time.Second - time.Millisecond
	// headroom is the part of the demand that an assignment has more.
	headroom = 0.25
	// leastReport is the least time between two reports that Envoy can be configured to send.
	leastReport = 100 * time.Millisecond
	// little is the part of an assignment by which it does not change without need.
	little = 0.2
)

// pool has the slices of one bucket in the whole fleet.
type pool interface {
	// Take acquires up to n slices, and returns the number.
	Take(n int64) int64
	// Part returns the largest number of slices up to n that Give can give back.
	Part(n int64) int64
	// Give gives n slices back, a number that Part returned.
	Give(n int64)
	// Most returns the slices that an Envoy with so many may keep, by the last answer of the pool.
	Most(held int64) int64
	// Tell tells the fleet what this Envoy needs.
	Tell(need)
	// Others returns the greatest need of the other Envoys.
	Others() need
	// Envoys returns the number of Envoys that have the bucket: one at least.
	Envoys() int64
}

// need is what an Envoy needs.
type need int

const (
	nothing need = iota
	wants        // it denied requests, and slices are scarce
	starves      // the same, and it has less than its part
)

// assignment is what one Envoy has of one bucket. Its slices are taken before Envoy hears of them. What an answer takes
// from Envoy is given back with a report of a second later, when Envoy has surely heard it.
type assignment struct {
	held    int64     // slices taken
	told    int64     // slices that Envoy may use; at most held
	changed time.Time // told
	begun   bool
}

// usage is a report of Envoy.
type usage struct {
	allowed, denied float64 // requests
	elapsed         time.Duration
}

// report decides about a report: it returns the slices that Envoy may use from now on. PerSecond is the limit.
func (a *assignment) report(p pool, u usage, perSecond float64, now time.Time) int64 {
	lowered, want := a.held-a.told, a.wanted(p, u, perSecond)
	c := change{a, perSecond, now.Sub(a.changed)}
	next, short := a.told, want > a.told && (u.denied > 0 || a.told == 0)
	if (short || float64(want) > (1+little)*float64(a.told)) && c.paid(want) {
		next += p.Take(want - a.told) // before lowered is given back: that is for others
		a.held += next - a.told
	}
	if lowered > 0 && now.Sub(a.changed) >= heard {
		p.Give(lowered)
		a.held -= lowered
	}
	if next == a.told && a.told > 1 {
		next = a.lower(p, c, want)
	}
	if next != a.told && c.paid(next) {
		a.told, a.changed = next, now
	}
	a.begun = true
	switch {
	case !short || want <= a.told:
		p.Tell(nothing)
	case a.told < fair(p):
		p.Tell(starves)
	default:
		p.Tell(wants)
	}
	return a.told
}

// lower returns the slices of an assignment that is not raised. It stays as it is while no other Envoy needs slices:
// its load may come back.
func (a *assignment) lower(p pool, c change, want int64) int64 {
	unused := float64(want) < (1-little)*float64(a.told)
	if !unused && !c.paid(a.told) {
		return a.told
	}
	others := p.Others()
	switch most := p.Most(a.held); {
	case most < a.told:
		return a.down(p, max(1, most))
	case unused && others == starves:
		return a.down(p, want)
	case unused && others == wants:
		return a.down(p, max(want, a.told/2))
	case others == starves:
		return a.shared(p)
	}
	return a.told
}

// change is a change of an assignment, which makes Envoy's bucket full.
type change struct {
	*assignment
	perSecond float64
	since     time.Duration // the last one
}

// paid reports whether the tokens of the full bucket are paid by what was not handed out since the last change. A
// lower assignment leaves slices without use until the next report, which pays too.
func (c change) paid(next int64) bool {
	if c.told == 0 {
		return true
	}
	slice := assigned * c.perSecond / allSlices
	full := tokensOf(float64(next) * slice)
	unused := float64(c.told-next) * slice * leastReport.Seconds()
	if next < c.told && full <= unused {
		return true
	}
	const late = quiet / 50 // a report may come a little early
	kept := (1 - assigned) * c.perSecond * float64(next) / allSlices * (c.since + late).Seconds()
	return c.since >= quiet-late && full <= kept
}

// wanted returns the slices that Envoy needs by its usage.
func (a *assignment) wanted(p pool, u usage, perSecond float64) int64 {
	share := 0.0 // of the limit
	switch {
	case !a.begun:
		share = 1 / float64(p.Envoys())
	case u.elapsed > 0:
		share = (u.allowed + u.denied) / u.elapsed.Seconds() / perSecond
	default:
		return max(1, a.told) // nothing is known
	}
	return int64(min(allSlices, math.Floor(share*(1+headroom)/assigned*allSlices)+1))
}

// shared returns what an Envoy keeps while others starve: it gives up half of what it has more than its part.
func (a *assignment) shared(p pool) int64 {
	part := fair(p)
	if a.told <= part {
		return a.told
	}
	return a.down(p, max(part, a.told-max(1, (a.told-part)/2)))
}

// fair returns the part of an Envoy if all need slices.
func fair(p pool) int64 { return max(1, allSlices/p.Envoys()) }

// down returns the least number of slices, from n, to which the assignment can go down.
func (a *assignment) down(p pool, n int64) int64 {
	return a.held - p.Part(a.held-n) // of held, whose permits may be those that a reduction before this one leaves
}

// end gives all slices back: Envoy's assignment has expired.
func (a *assignment) end(p pool) {
	p.Give(a.held)
	*a = assignment{}
}
