package local

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// plan has the constants derived from a valid limit. It never changes, and keys share it. Times are measured from the
// limiter's start ("shard time").
type plan struct {
	limit  hybridlimit.Limit
	period time.Duration
	idle   time.Duration // after this time without a call, a key without debt is full
	burst  int64

	perSecond float64 // buckets: units that come back
	perUnit   float64 // ns until a unit comes back
	slack     float64 // see admits
	short     bool    // see bucket.wait

	unit, refill int64 // queue: sub-units per unit, and sub-units served per ns

	origin  time.Duration // windows: shard time 0 in Unix time
	fromUse bool          // windows: one begins with the first unit after the last one ended
}

// newPlan makes the plan of a limit that check has accepted. Limiters started at different times have the same windows,
// if their wall clocks agreed at the start.
func newPlan(limit hybridlimit.Limit, idle time.Duration, start time.Time) *plan {
	if static(limit.Algorithm) {
		return &plan{limit: limit, burst: limit.BurstSize(), idle: idle}
	}
	period := limit.Period
	if period == 0 { // a calendar has the period: see window
		period = limit.TimeToFull()
	}
	a, b := limit.Rate, int64(period)
	for b != 0 {
		a, b = b, a%b
	}
	p := &plan{
		limit:     limit,
		period:    period,
		idle:      max(idle, fullAfter(limit)),
		burst:     limit.BurstSize(),
		perSecond: float64(limit.Rate) / period.Seconds(),
		unit:      int64(period) / a,
		refill:    limit.Rate / a,
		origin:    time.Duration(start.UnixNano()),
		fromUse:   limit.Calendar.Unit == hybridlimit.FromUse,
	}
	p.perUnit = float64(time.Second) / p.perSecond
	p.slack = p.perSecond / float64(time.Second)
	for p.nanos(p.slack) >= 1 {
		p.slack = math.Nextafter(p.slack, 0)
	}
	p.short = float64(p.burst)*p.perUnit < 1<<45
	return p
}

// fullAfter returns the time without a call after which a key is full. Units of a sliding window count in the next
// window too.
func fullAfter(limit hybridlimit.Limit) time.Duration {
	switch {
	case limit.Algorithm == hybridlimit.AlgSlidingWindow && limit.Period <= hybridlimit.Never/2:
		return 2 * limit.Period
	case limit.Algorithm == hybridlimit.AlgCalendarWindow: // where a zone skips a date, a period is a day longer
		return limit.TimeToFull() + 24*time.Hour
	}
	return limit.TimeToFull()
}

// nanos returns the time in which the missing units come back, in ns, rounded as by rate.Limiter. perUnit would round
// otherwise.
func (p *plan) nanos(missing float64) float64 { return missing / p.perSecond * float64(time.Second) }

// windowStart returns the start of the window at now: a multiple of the period in Unix time. It may lie before shard
// time 0.
func (p *plan) windowStart(now time.Duration) time.Duration {
	into := (p.origin + now) % p.period
	if into < 0 { // a clock before 1970
		into += p.period
	}
	return now - into
}

// window returns the window at now of a fixed window. Of one that begins with a use, it is the window that begins now.
func (p *plan) window(now time.Duration) (start, end time.Duration) {
	switch {
	case p.fromUse:
		return now, now + p.period
	case p.limit.Calendar.Unit == 0:
		start = p.windowStart(now)
		return start, start + p.period
	}
	// The zone was found when the limit was checked.
	begin, until, err := p.limit.Calendar.Bounds(time.Unix(0, int64(p.origin+now)))
	if err != nil {
		panic("local: a checked calendar has no bounds: " + err.Error())
	}
	return time.Duration(begin.UnixNano()) - p.origin, time.Duration(until.UnixNano()) - p.origin
}

// mulDiv returns ⌊a·b/c⌋ and the remainder, for 0 ≤ a ≤ c or 0 ≤ b ≤ c, and 0 < c. The product has 128 bits, the
// quotient fits.
func mulDiv(a, b, c int64) (quo, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}

// plans caches the plans of limits that come with calls, so that a call with a recent limit neither validates nor
// allocates. Two limits that share a place replace each other, which costs each about 200 ns.
type plans [64]atomic.Pointer[plan]

func (c *plans) slot(l hybridlimit.Limit) *atomic.Pointer[plan] {
	h := uint64(l.Rate)*0x9E3779B97F4A7C15 ^ uint64(l.Period)*0xC2B2AE3D27D4EB4F ^ uint64(l.Burst)*0x165667B19E3779F9
	return &c[(h^h>>32)*0x9E3779B97F4A7C15>>58]
}

// static reports whether an algorithm counts nothing: it admits all or none, and holds no keys.
func static(a hybridlimit.Algorithm) bool {
	return a == hybridlimit.AlgUnlimited || a == hybridlimit.AlgBlocked
}

// offered reports whether newEntry knows the algorithm, or it needs no state.
func offered(a hybridlimit.Algorithm) bool { return a <= hybridlimit.AlgCalendarWindow || static(a) }

// state is the usage of a key under one algorithm. Its methods are the arithmetic: the answer and the next state follow
// from the state, the plan, now and n. None reads a clock, and now never decreases. n is from 1 to p.burst; charge and
// refund take any n from 1.
type state interface {
	// advance brings the state to now. It comes before all others, also before change.
	advance(p *plan, now time.Duration)
	// take takes n units if they are available within most. Only buckets and queues can take units of the future.
	take(p *plan, now time.Duration, n int64, most time.Duration) booking
	// look takes nothing. retry is for n, and 0 for n = 0.
	look(p *plan, now time.Duration, n int64) look
	// charge takes n units, available or not, down to a burst of debt.
	charge(p *plan, now time.Duration, n int64)
	// refund gives n units back, at most until the key is full, and returns their number.
	refund(p *plan, now time.Duration, n int64) float64
	// mark returns the data that undo needs. It is called directly after the units were taken.
	mark(p *plan, now time.Duration) mark
	// undo gives back the n units taken at m, or fewer, and returns their number. given is the number of other units
	// given back since.
	undo(p *plan, now time.Duration, m mark, given float64, n int64) float64
	// change goes from one limit to another.
	change(from, to *plan, now time.Duration)
}

// look is the answer of a key.
type look struct {
	room  int64         // the largest n that would be taken, 0 in debt
	retry time.Duration // until n would be taken
	reset time.Duration // until the key has the state of an unused one
}

// booking is the answer to take. If not ok, windows and logs leave the times to look.
type booking struct {
	ok    bool
	delay time.Duration // until the units are available, if nothing else is taken
	retry time.Duration // if not ok: until the same could be taken; 0 if only most prevents it
}

// mark is the time at which units were taken, and parts of the state directly after. Each algorithm needs some of them.
type mark struct {
	at    time.Duration
	level float64 // units left, of a bucket
	turns *turns  // of a queue
	tail  int64
	until time.Duration // end of the window; when units leave a log
	by    string        // of a log: the request that took them
}

// turns identifies places in a queue by the position of its tail, in sub-units, before and after they were taken.
type turns struct {
	tail int64
	gaps gaps // at most Burst
}

// gaps are cancelled bookings with other bookings behind them, in their order.
type gaps []gap

// gap is a cancelled booking. from and to are positions of the tail. kept is the number of units that have not come
// back, in a bucket.
type gap struct{ from, to, kept int64 }

// add adds a gap.
func (gs *gaps) add(g gap) {
	i, _ := slices.BinarySearchFunc(*gs, g.from, func(g gap, from int64) int { return cmp.Compare(g.from, from) })
	*gs = slices.Insert(*gs, i, g)
}

// close removes the gaps that end at to, one before the other. It returns their begin, and the units that they kept.
func (gs *gaps) close(to int64) (from, kept int64) {
	for i := len(*gs) - 1; i >= 0 && (*gs)[i].to == to; i-- {
		to, kept = (*gs)[i].from, kept+(*gs)[i].kept
		*gs = (*gs)[:i]
	}
	return to, kept
}
