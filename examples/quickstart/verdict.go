package main

import (
	"fmt"
	"math"
	"time"
)

// record is what was measured, as far as the verdict needs it.
type record struct {
	config    config
	cells     [][]cell // by process
	fleet     []int64  // the smallest N that each process has worked with before the restart
	credit    int64    // the largest C before the restart
	outage    bool     // Redis was killed and came back
	killed    time.Duration
	restarted time.Duration // just before the new server was started
	errors    int64         // that calls returned
	lastError string
}

// bound is a promise about how much the fleet admits: in every interval at most
// rate × its length, and so many units more.
type bound struct {
	what     string
	measured float64 // units above rate × length in the worst interval
	allowed  float64
	why      string // what allowed is made of
}

func (b bound) ok() bool { return b.measured <= b.allowed+1e-6 } // rates are not always whole per cell

// claim is anything else that has to hold.
type claim struct {
	ok   bool
	what string
}

type verdict struct {
	bounds []bound
	claims []claim
	notes  []string
}

func (v verdict) ok() bool { return len(v.failed()) == 0 }

// failed is what did not hold, with figures.
func (v verdict) failed() []string {
	var out []string
	for _, b := range v.bounds {
		if !b.ok() {
			out = append(out, fmt.Sprintf("%s: %.1f units above rate × time, allowed %.1f (%s)", b.what, b.measured, b.allowed, b.why))
		}
	}
	for _, c := range v.claims {
		if !c.ok {
			out = append(out, c.what)
		}
	}
	return out
}

// judge holds what was measured against what the documentation of package
// hybrid promises, for the hot key.
func judge(r record) verdict {
	var v verdict
	end := r.end()
	if !r.outage {
		v.bounds = append(v.bounds, r.sharedBound("Redis up", 0, end, r.known()))
		_, stray := r.alone(nil)
		v.strays(stray)
		v.claims = append(v.claims, r.errorClaim())
		return v
	}
	restart := cellOf(r.restarted)
	back := r.backAt(restart)
	inOutage, stray := r.alone(back)
	v.bounds = []bound{
		r.sharedBound("Redis up", 0, restart, r.known()),
		r.aloneBound(inOutage),
		r.sharedBound("Redis back, empty", restart, end, r.known()),
		// The new Redis is told what was used before, so it gives no new quota.
		r.sharedBound("both Redis, as one", 0, end, r.known()),
	}
	v.notes = append(v.notes, "What processes admitted alone, Redis hears of from each as it comes back. Until the last has, it may\n"+
		"give the others' part once more, as a spike at the end of the outage; it is repaid.")
	v.strays(stray)
	v.claims = append(v.claims, r.aloneClaim(restart), r.backClaim(back), r.errorClaim())
	return v
}

// sharedBound is Burst + (N-1)·C for what came from leases, credit and Redis
// itself; of what a process decided alone it says nothing. Leases that were
// taken before Redis died and spent after it count, at the time of spending.
func (r record) sharedBound(what string, from, to, known int) bound {
	var as []admission
	for _, cells := range r.cells {
		for _, c := range cells {
			as = append(as, admission{c.Began, c.Ended, c.Shared})
		}
	}
	others, credit := int64(r.config.Processes-1), max(r.config.credit(known), r.credit)
	b := bound{
		what:     what,
		measured: excess(as, from, to, float64(r.config.Rate)),
		allowed:  float64(r.config.Burst + others*credit),
		why:      fmt.Sprintf("burst %s + credit %d × %d", number(r.config.Burst), others, credit),
	}
	if !r.outage {
		drift := math.Ceil(clockDrift * float64(r.config.Rate) * float64(r.config.Seconds))
		b.allowed += drift
		b.why += fmt.Sprintf(" + %.0f: its clock may run 0.1 %% faster", drift)
	}
	return b
}

// clockDrift is how much faster than ours the clock of a Redis on another
// machine may run: twice what adjtime allows.
const clockDrift = 0.001

// aloneBound is limit/N known for each process, but at least the floor, and N
// times that. A process's share begins with its part of what Redis last said was
// left, so under load what is measured is far less.
func (r record) aloneBound(as []admission) bound {
	var burst, rate float64
	limit := r.config.limit()
	for _, n := range r.fleet {
		n := float64(max(n, 1))
		burst += max(float64(limit.Burst)/n, fallbackFloor)
		rate += max(float64(limit.Rate)/n, fallbackFloor/limit.TimeToFull().Seconds())
	}
	b := bound{
		what: "Redis dead", allowed: burst,
		why: fmt.Sprintf("%d × burst/%d", len(r.fleet), r.known()),
	}
	if rate > float64(limit.Rate)*(1+1e-9) {
		b.why = fmt.Sprintf("%d shares, with %.1f/s × time in all: each at least %d, and for N as each knew it",
			len(r.fleet), rate, fallbackFloor)
	} else {
		rate = float64(limit.Rate)
	}
	b.measured = excess(as, 0, r.end(), rate)
	return b
}

const fallbackFloor = 1 // hybrid.Config.FallbackFloor's zero

// known is the smallest N that any process has worked with.
func (r record) known() int {
	n := int64(r.config.Processes)
	for _, f := range r.fleet {
		n = min(n, max(f, 1))
	}
	return int(n)
}

func (r record) end() int {
	end := 0
	for _, cells := range r.cells {
		for _, c := range cells {
			end = max(end, c.Ended+1)
		}
	}
	return end
}

const never = math.MaxInt

// backAt is, for each process, the cell of its first decision with the new
// Redis.
func (r record) backAt(restart int) []int {
	back := make([]int, len(r.cells))
	for p, cells := range r.cells {
		back[p] = never
		for _, c := range cells {
			if c.Began >= restart && c.SharedCalls > 0 {
				back[p] = min(back[p], c.Ended)
			}
		}
	}
	return back
}

// alone is what processes admitted without Redis: from its death until each was
// back, and how many units at other times.
func (r record) alone(back []int) (inOutage []admission, stray int64) {
	for p, cells := range r.cells {
		for _, c := range cells {
			if back != nil && c.Began >= cellOf(r.killed) && c.Ended <= back[p] {
				inOutage = append(inOutage, admission{c.Began, c.Ended, c.Alone})
			} else {
				stray += c.Alone
			}
		}
	}
	return inOutage, stray
}

func (v *verdict) strays(units int64) {
	if units > 0 {
		v.notes = append(v.notes, fmt.Sprintf("Units admitted alone at other times: %s, when Redis took longer than MaxWait (20ms), as it may\n"+
			"on a busy machine. No bound is promised for these, and none of the above counts them.", number(units)))
	}
}

func (r record) aloneClaim(restart int) claim {
	var idle []int
	for p, cells := range r.cells {
		decided := int64(0)
		for _, c := range cells {
			if c.Began >= cellOf(r.killed) && c.Ended <= restart {
				decided += c.AloneCalls
			}
		}
		if decided == 0 {
			idle = append(idle, p+1)
		}
	}
	if idle != nil {
		return claim{false, fmt.Sprintf("process %s did not decide alone while Redis was dead", list(idle))}
	}
	return claim{true, "every process went on deciding while Redis was dead"}
}

func (r record) backClaim(back []int) claim {
	var lost []int
	last := 0
	for p, at := range back {
		if at == never {
			lost = append(lost, p+1)
		} else {
			last = max(last, at)
		}
	}
	if lost != nil {
		return claim{false, fmt.Sprintf("process %s did not come back to Redis", list(lost))}
	}
	took := time.Duration(last+1)*cellTime - r.restarted
	return claim{true, fmt.Sprintf("every process came back to Redis, the last within %.2fs", took.Seconds())}
}

func (r record) errorClaim() claim {
	if r.errors > 0 {
		return claim{false, fmt.Sprintf("%s calls returned an error, the last: %s", number(r.errors), r.lastError)}
	}
	return claim{true, "no call returned an error"}
}
