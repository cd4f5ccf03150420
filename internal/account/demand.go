package account

import "math"

// demandMemory is the time constant of the demand estimate. A shorter one follows faster and is less steady: with 0.1 s
// the sizes of leases were wrong by up to a tenth.
const demandMemory = 1e9 // ns

// demand estimates the units a second that calls ask of a key, also of denied calls. It is an exponentially decayed
// count.
type demand struct {
	sum   float64 // units, decayed
	at    int64   // ns; the time of the last decay; 0: there was no call
	sq    float32 // the sum of the squared costs of calls, decayed: the variance of sum
	young float32 // 1 at the first call, decayed
	ticks float32 // the number of ticks with a call, decayed
	tick  uint32  // the number of the last tick with a call, modulo 2³²
}

// demandTick is the time (ns) of a tick: calls within it count as one group.
const demandTick = 5e6

// steadyTicks is the number of ticks with calls from which on calls in groups count as steady. With 40, processes that
// are used in turns of 250 ms sent 7 % more ops.
const steadyTicks = 20

func (d *demand) note(n, now int64) {
	if d.at == 0 {
		d.at, d.young = now, 1
	}
	d.decay(now)
	d.sum += float64(n)
	d.sq += float32(n) * float32(n)
	if tick := uint32(now / demandTick); tick != d.tick {
		d.ticks, d.tick = d.ticks+1, tick
	}
}

// spread notes units that were asked for since the last decay, at unknown times and by an unknown number of calls. They
// count as if they had come evenly, in calls of the average cost so far.
func (d *demand) spread(units, now int64) {
	if d.at == 0 {
		d.note(units, now)
		return
	}
	cost := 1.0
	if d.sum > 0 {
		cost = max(cost, float64(d.sq)/d.sum)
	}
	left, span := float64(units), max(0, float64(now-d.at)/demandMemory)
	if span > 0 {
		d.decay(now)
		left *= -math.Expm1(-span) / span
	}
	d.sum += left
	d.sq += float32(left * cost)
	d.ticks += float32(min(left/cost, span*demandMemory/demandTick))
}

func (d *demand) decay(now int64) {
	if d.at != 0 && now > d.at {
		fade := math.Exp(-float64(now-d.at) / demandMemory)
		d.sum, d.sq, d.young, d.ticks, d.at = d.sum*fade, d.sq*float32(fade), d.young*float32(fade), d.ticks*float32(fade), now
	}
}

// perSecond returns the estimate. For a young key it is 1.5 standard deviations lower, so that a single call does not
// count as a flood, however much it costs.
func (d *demand) perSecond(now int64) float64 {
	if d.at == 0 {
		return 0
	}
	d.decay(now)
	fade := float64(d.young)
	// memory is the seconds of history in sum. The minimum is the slow start of leases: calls within a few milliseconds
	// of the first call are a group, and not a flood. A lease is then at most twice the units that were used.
	memory := max(1-fade, 0.5)
	return max(0, d.sum-1.5*math.Sqrt(float64(d.sq))*fade) / memory
}

// steady returns perSecond less the part of its standard deviation that comes from calls that cost more than a unit.
// Redis subtracts the rest.
func (d *demand) steady(now int64) float64 {
	rate := d.perSecond(now)
	if d.sum <= 0 {
		return rate
	}
	cost := float64(d.sq) / d.sum
	return max(0, rate-math.Sqrt(cost*rate)+math.Sqrt(rate))
}

// lasting returns steady less the part that may be a group of calls. A group is over before its process spends a lease.
// Calls that come one by one, or in many ticks, are no group. The cube keeps leases of a group small for 50 ms: a burst
// of 1000 calls takes a fleet on a busy machine that long.
func (d *demand) lasting(now int64) float64 {
	rate := d.steady(now)
	if d.sum <= 0 {
		return rate
	}
	calls := min(steadyTicks, d.sum*d.sum/float64(d.sq))
	if calls <= 1 {
		return rate
	}
	spread := max(0, min(1, (float64(d.ticks)-1)/(calls-1)))
	return rate * spread * spread * spread
}
