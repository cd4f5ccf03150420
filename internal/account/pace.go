package account

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// This file has the looks at the leases of a window. Such a lease lives until its window ends, so units that the
// process will not spend would be refused to others for all that time. A lease is for algo.WindowLease at most, so in a
// window that is not much longer it is a large part of the process's share: the process looks at its pace. In a longer
// one it waits until it hears that another process was refused: see Want.

// paceWindow is the longest period (ns) of a window in which a process looks at its pace. In each, it looks windowLooks
// times, but not less often than once in looksMost (ns).
const (
	paceWindow  = 3 * algo.WindowLease * 1000
	windowLooks = 16
	looksMost   = int64(300e6)
)

// wantedFrom is the shortest period (ns) of a window in which a refused process tells the others: they hear it within
// two seconds. In relookWindow (ns) after the refusal, the units that were idle are back.
const (
	wantedFrom   = int64(4e9)
	relookWindow = int64(1800e6)
)

// paced is the use of the leases of a window.
type paced struct {
	pace  float64 // units a ns: the demand for which the leases were taken
	spent int64   // units, since the time since
	since int64   // ns
}

// pacedFor returns the use of leases that are taken at now. Where a window has plenty of units, Redis adds up to 1.5
// standard deviations to a lease.
func pacedFor(units, now, end int64) paced {
	life := max(1, min(end-now, algo.WindowLease*1000))
	return paced{pace: max(0, float64(units)-math.Sqrt(float64(units))) / float64(life), since: now}
}

// looksAtPace reports whether the process looks at its pace in a window. In a sliding one it returns units with its ask
// for the next one: see spareHere.
func (c *Conditions) looksAtPace() bool {
	return c.windowed() && !c.Window.Sliding && c.Window.Period*1000 <= paceWindow
}

// looksEvery returns the time (ns) between two looks at leases of a window.
func (a *Account) looksEvery(c *Conditions) int64 {
	switch {
	case c.looksAtPace():
		return max(c.idleAfter(), min(c.Window.Period*1000/windowLooks, looksMost))
	case a.wanted:
		return max(c.idleAfter(), looksMost)
	}
	return c.idleWindow()
}

// idleWindow is idleAfter for a long window whose units are not wanted. A process that uses the key now and then would
// need two syncs for each use if its units went back within seconds.
func (c *Conditions) idleWindow() int64 { return max(c.idleAfter(), c.Window.Period*1000/2) }

// Wanting reports whether the other processes should hear that units of this key are wanted: the window is used up, and
// they may hold some of its units. Call it after an answer.
func (a *Account) Wanting(c *Conditions) bool {
	return a.hopesHere(c) && c.hasLeases() && c.Window.Period*1000 >= wantedFrom
}

// Want notes that another process was refused units of the key.
func (a *Account) Want(c *Conditions, now int64) {
	if c.windowed() && a.Held() > 0 && !a.wanted {
		a.wanted, a.lookBy = true, now
	}
}

// idleUses is the number of units that a process should have spent since its last use, by the pace of its leases, from
// which on it is idle.
const idleUses = 5

// enough is the number of units that should have been spent from which on a look is sure that the demand is still the
// same.
const enough = 20

// surplusOfWindow is surplus for a window.
func (a *Account) surplusOfWindow(c *Conditions, units, now int64) int64 {
	if a.lookBy == 0 || now < a.lookBy {
		return 0
	}
	every, quiet, rest := a.looksEvery(c), now-a.spentAt, a.LeaseEnds()-now
	a.lookBy = now + every
	switch {
	case !a.wanted && !c.looksAtPace():
		return a.surplusUnwanted(c, units, quiet, now)
	case rest <= every: // they end before others can use them
		return 0
	case a.wanted && quiet < every:
		a.lookBy = a.spentAt + every
		return 0
	case a.wanted:
		return units
	case float64(quiet)*a.paced.pace >= idleUses:
		return units
	}
	surplus := a.paced.surplus(units, min(rest, algo.WindowLease*1000), now)
	if surplus > 0 {
		a.paced = pacedFor(units-surplus, now, a.LeaseEnds())
	}
	return surplus
}

// surplus returns how many of the units are more than the process will spend in rest (ns). Counts of calls vary. If
// fewer were spent than by the pace of the leases, by two standard deviations, the demand has become smaller: units for
// the pace since then stay, and a standard deviation more.
func (p *paced) surplus(units, rest, now int64) int64 {
	span := float64(now - p.since)
	due := p.pace * span
	if float64(p.spent) >= due-2*math.Sqrt(due) {
		if due >= enough {
			p.spent, p.since = 0, now // a later change of the demand is then seen sooner
		}
		return 0
	}
	mu := float64(p.spent+1) * float64(rest) / span
	if keep := int64(math.Ceil(mu + math.Sqrt(mu))); keep < units-units/4 { // fewer are not worth a message
		return units - keep
	}
	return 0
}

// surplusUnwanted is surplusOfWindow for a long window whose units are not wanted. Units that were not used for half of
// the window go back if the window may run out: by the view, the part of its units that is left is less than the part
// of its time.
func (a *Account) surplusUnwanted(c *Conditions, units, quiet, now int64) int64 {
	if quiet < c.idleWindow() {
		a.lookBy = max(a.lookBy, a.spentAt+c.idleWindow())
		return 0
	}
	if at := a.aheadAt(c, now); c.Window.Sliding && at > now {
		a.lookBy = at // they go back with the ask for the next window
		return 0
	}
	left := float64(a.view.level) / float64(c.Window.Cap)
	if time := float64(a.view.ends-a.view.received) / 1000 / float64(c.Window.Period); left >= time {
		return 0
	}
	return units
}
