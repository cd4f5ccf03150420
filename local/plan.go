package local

import (
	"math"
	"math/bits"
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

	origin time.Duration // windows: shard time 0 in Unix time
}

// newPlan makes the plan of a limit that check has accepted. Limiters started at different times have the same windows,
// if their wall clocks agreed at the start.
func newPlan(limit hybridlimit.Limit, idle time.Duration, start time.Time) *plan {
	if static(limit.Algorithm) {
		return &plan{limit: limit, burst: limit.BurstSize(), idle: idle}
	}
	a, b := limit.Rate, int64(limit.Period)
	for b != 0 {
		a, b = b, a%b
	}
	p := &plan{
		limit:     limit,
		period:    limit.Period,
		idle:      max(idle, fullAfter(limit)),
		burst:     limit.BurstSize(),
		perSecond: float64(limit.Rate) / limit.Period.Seconds(),
		unit:      int64(limit.Period) / a,
		refill:    limit.Rate / a,
		origin:    time.Duration(start.UnixNano()),
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
	if limit.Algorithm == hybridlimit.AlgSlidingWindow && limit.Period <= hybridlimit.Never/2 {
		return 2 * limit.Period
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
func offered(a hybridlimit.Algorithm) bool { return a <= hybridlimit.AlgSlidingLog || static(a) }
