package account

import "math"

// demandMemory is the time constant of the demand estimate. A shorter one follows faster and is less steady: with 0.1 s the sizes
// of leases were wrong by up to a tenth.
const demandMemory = 1e9 // ns

// demand estimates how many units a second are asked of a key, denied calls included: an exponentially decayed count.
type demand struct {
	sum   float64 // units, decayed
	sq    float64 // units² by call, decayed: the variance of sum
	at    int64   // ns of the last decay
	first int64   // ns of the first call; 0: none yet
}

func (d *demand) note(n, now int64) {
	if d.first == 0 {
		d.first, d.at = now, now
	}
	d.decay(now)
	d.sum += float64(n)
	d.sq += float64(n) * float64(n)
}

// spread notes units that were asked for since the last decay, at unknown times and by an unknown number of calls. They count as
// if they had come evenly, and by calls of the cost that calls had before.
func (d *demand) spread(units, now int64) {
	span := float64(now-d.at) / demandMemory
	if d.first == 0 || span <= 0 {
		d.note(units, now)
		return
	}
	cost := 1.0
	if d.sum > 0 {
		cost = max(cost, d.sq/d.sum)
	}
	d.decay(now)
	left := float64(units) * -math.Expm1(-span) / span
	d.sum += left
	d.sq += left * cost
}

func (d *demand) decay(now int64) {
	if now > d.at {
		fade := math.Exp(-float64(now-d.at) / demandMemory)
		d.sum, d.sq, d.at = d.sum*fade, d.sq*fade, now
	}
}

// perSecond is the estimate. From that of a young key 1.5 standard deviations are taken off, so that a single call does not count
// as a flood, however much it costs.
func (d *demand) perSecond(now int64) float64 {
	if d.first == 0 {
		return 0
	}
	d.decay(now)
	fade := math.Exp(-float64(now-d.first) / demandMemory)
	// seconds of history that sum holds; 1 ms so that a burst in the first
	// instant is not taken for an infinite rate
	memory := max(1-fade, 1e-3)
	return max(0, d.sum-1.5*math.Sqrt(d.sq)*fade) / memory
}

// steady is perSecond less the part of its deviation that comes from calls that cost more than a unit. Redis knows the rest.
func (d *demand) steady(now int64) float64 {
	rate := d.perSecond(now)
	if d.sum <= 0 {
		return rate
	}
	cost := d.sq / d.sum
	return max(0, rate-math.Sqrt(cost*rate)+math.Sqrt(rate))
}
