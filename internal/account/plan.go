package account

import (
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/fallback"
	"github.com/hybridlimit/hybridlimit/internal/parts"
)

// Plan is a limit and the constants that follow from it, for one class of a limiter. It does not change.
type Plan struct {
	Limit      hybridlimit.Limit // valid
	Burst      int64             // the units that the class may use at once: Limit.BurstSize() less the floor
	Most       int64             // the largest cost of a call; of a part, the same in all parts
	Shown      int64             // Burst; of a part, that of the undivided key
	algo.Scale                   // of a limit that counts; with the floor of the class
	Upper      bool              // the limiter has a class with a larger floor: see algo.Op.Upper
	Full       int64             // ns from empty to full
	PerNs      float64           // of a bucket: units that come back in a ns
	PerUnit    float64           // of a bucket: µs in which a unit comes back
	From       Origin            // of the limit
	Began      int64             // ns; the time at which SetLimit, LimitFor or the call set the limit; 0: long ago
	Of         *Plan             // of a key that has the limiter's limit, but not its plan: that plan; else nil
	Part       parts.Part        // of a split key
	split      *Plan             // of a part: the plan of the undivided key; else nil
	floor      float64           // of the class: the part of the burst
	// Counts is the algorithm of the limiter's last limit that counts. Every existing account has that algorithm.
	Counts hybridlimit.Algorithm
}

// Origin is the source of a key's limit.
type Origin uint8

// The origins.
const (
	FromLimiter Origin = iota // SetLimit replaces it
	FromConfig                // Config.LimitFor
	FromCall                  // AllowLimit
)

// NewPlan returns the plan of a valid limit.
func NewPlan(l hybridlimit.Limit) *Plan {
	burst := l.BurstSize()
	p := &Plan{Limit: l, Burst: burst, Most: burst, Shown: burst, Full: int64(l.TimeToFull()), Counts: l.Algorithm}
	if !Static(l) && l.Algorithm != hybridlimit.AlgConcurrent {
		p.Scale = algo.ScaleOf(l)
		if p.Window.Period == 0 {
			p.PerNs = float64(l.Rate) / float64(l.Period)
			p.PerUnit = float64(p.Bucket.Unit) / float64(p.Bucket.Refill)
		}
	}
	return p
}

// Above returns the plan for a class of the limit. floor is the part of the burst that the class leaves to others.
// upper reports whether the limiter has a class with a larger floor. A limit that counts nothing has no floors.
func (p *Plan) Above(floor float64, upper bool) *Plan {
	of := *p
	of.Upper, of.floor = upper, floor
	if !Static(p.Limit) {
		of.Scale = p.Scale.Above(hybridlimit.Class{Floor: floor}.Units(p.Limit))
		of.Burst -= of.Floor
		of.Most, of.Shown = of.Burst, of.Burst
	}
	return &of
}

// Undivided returns the plan of the whole key, for a plan of a part; otherwise the plan itself.
func (p *Plan) Undivided() *Plan {
	if p.split != nil {
		return p.split
	}
	return p
}

// In returns the plan of a part of a key with this plan, which parts.Check has accepted. A plan of a part is first made
// undivided.
func (p *Plan) In(part parts.Part) *Plan {
	if p.Part == part {
		return p
	}
	whole := p.Undivided()
	if part.Of < 2 {
		return whole
	}
	of := NewPlan(part.Limit(whole.Limit)).Above(whole.floor, whole.Upper)
	least := parts.Part{Nth: part.Of, Of: part.Of}.Limit(whole.Limit) // of all parts
	of.Most, of.Shown = least.BurstSize()-hybridlimit.Class{Floor: whole.floor}.Units(least), whole.Burst
	of.Part, of.split = part, whole
	of.From, of.Began, of.Counts = whole.From, whole.Began, whole.Counts
	if whole.From == FromLimiter {
		if of.Of = whole.Of; of.Of == nil {
			of.Of = whole
		}
	}
	return of
}

// Static reports whether a limit counts nothing: it admits all calls, or none.
func Static(l hybridlimit.Limit) bool {
	return l.Algorithm == hybridlimit.AlgUnlimited || l.Algorithm == hybridlimit.AlgBlocked
}

// InForce returns the µs for which the limit has been in force, for algo.Op.Since.
func (p *Plan) InForce(now int64) int64 {
	if p.Began == 0 {
		return 0
	}
	return p.Since((now - p.Began) / 1000)
}

// Rate returns the units that come back in a ns, on average, without a floor.
func (p *Plan) Rate() float64 { return float64(p.Burst+p.Floor) / float64(max(1, p.Full)) }

// Each returns the ns in which a queue serves one unit.
func (p *Plan) Each() int64 { return (p.Bucket.Unit*1000 + p.Bucket.Refill - 1) / p.Bucket.Refill }

// Refilled returns the time until a bucket with left units is full, in whole µs, rounded up. It multiplies floats,
// because a division of integers would be a fifth of the cost of a decision.
func (p *Plan) Refilled(left float64) time.Duration {
	return time.Duration(int64((float64(p.Burst)-left)*p.PerUnit+(1-1e-6))) * time.Microsecond
}

// Credit returns C, the number of units that an account may admit before Redis is told, in a fleet of n accounts. every
// is K. Rules 1 and 16 of docs/protocol.md use C.
func (p *Plan) Credit(mode Mode, overshoot float64, every, n int64) int64 {
	others := max(n-1, 1)
	switch {
	case p.Bucket.Queue: // only Redis knows when a queue serves a call
	case mode == ModeAuto:
		return int64(overshoot*float64(p.Burst+p.Floor)) / others
	case mode == ModeDeferred:
		return min(every, (p.Burst+p.Floor)/others)
	}
	return 0
}

// Fallback is the key's share of the limit without Redis.
type Fallback struct {
	fallback.Size
	Window int64          // ns, of a window; 0: the limit is no window
	Share  fallback.Share // of the key; the classes of a limiter have it together
}

// Fallback returns the size of the share of one of n processes. least is Config.FallbackFloor, in units. The burst of a
// key's own limit may be below it. All classes of a limiter have one share, in which a class leaves its part of the
// floor. It leaves no part of the last unit: otherwise small shares would admit nothing of the class.
func (p *Plan) Fallback(kind fallback.Kind, least, n int64) Fallback {
	burst := p.Burst + p.Floor
	period := float64(p.Limit.Period)
	if p.Window.Calendar {
		period = float64(p.Limit.TimeToFull())
	}
	f := Fallback{Window: p.Window.Period * 1000, Size: fallback.Size{
		Kind: kind, Burst: burst, PerNs: float64(p.Limit.Rate) / period,
	}}
	switch {
	case p.Window.Period > 0:
		f.Period, f.Sliding = f.Window, p.Window.Sliding
	case p.Kind == algo.KindLog:
		f.Period, f.Sliding = int64(p.Limit.Period), true
	}
	if kind == fallback.KindShare {
		least = min(max(least, 1), burst)
		n = max(n, 1)
		part := burst / n
		f.Burst, f.PerNs, f.Saved = max(part, least), f.PerNs/float64(n), part < least
	}
	f.Floor = max(0, min(f.Burst*p.Floor/max(burst, 1), f.Burst-1))
	return f
}

// sameWindows reports whether Redis counts two limits in the same windows.
func sameWindows(old, p *Plan) bool {
	same := old.Kind == p.Kind && old.Window.Period == p.Window.Period && calendarOf(old) == calendarOf(p)
	return same && p.Window.Period > 0 && !Static(old.Limit) && !Static(p.Limit)
}

// calendarOf returns the calendar of a plan. The zones "UTC" and "" are one: a text of a limit names UTC, and is read
// back as "".
func calendarOf(p *Plan) hybridlimit.Calendar {
	c := p.Limit.Calendar
	if c.Zone == "UTC" {
		c.Zone = ""
	}
	return c
}

// anotherCount reports whether Redis counts the units of two plans apart, so a view of one says nothing about the
// other.
func anotherCount(old, p *Plan) bool {
	return old.Kind != p.Kind || p.Window.Period > 0 || Static(old.Limit) || Static(p.Limit)
}

// convert returns a level of Redis under another plan as a level above the floor of this plan.
func (p *Plan) convert(level int64, from *Plan) int64 {
	return p.Whole().Bucket.Convert(level, from.Whole().Bucket) - p.Low()
}
