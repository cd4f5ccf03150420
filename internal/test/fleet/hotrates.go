package fleet

import (
	"math"
	"time"
)

// hotRates leases rates: a process is assigned its part of the offered calls, and runs a bucket of that rate, which
// starts empty. Redis keeps the sums of the assigned rates, depths and offered calls of two generations, and a level
// that refills with the rate that is not assigned, up to the burst less the depths. So the level and all buckets grow
// with the rate at most, and stay below the burst: there is no excess. A process asks for units beside its assignment.
type hotRates struct {
	w     *hotWorld
	procs []ratesProcess

	// In Redis:
	generation  int64
	rate, depth [2]float64 // assigned in this generation and in the last one
	offered     [2]float64
	level       float64
	last        int64 // ns
}

type ratesProcess struct {
	rate, depth, tokens float64
	units, booked       float64 // leased units in hand, and their record
	refilled            int64   // ns
	until, unitsUntil   int64   // ns
	generation          int64
	offered             float64 // since the last exchange
	demand              float64 // per second
	asked               int64   // ns; the last exchange
	next                int64   // ns; the next exchange that a call may cause
	view                float64
	heard, busy         bool
}

const ratesLife = int64(4 * time.Second)

func newHotRates(w *hotWorld) *hotRates {
	h := &hotRates{w: w, level: float64(w.s.Limit.Burst), procs: make([]ratesProcess, w.s.Processes)}
	for i := range h.procs {
		w.After(ratesLife/8+w.rnd.Int64N(ratesLife), func() { h.renew(i) })
	}
	return h
}

func (p *ratesProcess) refill(now int64) {
	if to := min(now, p.until); to > p.refilled {
		p.tokens, p.refilled = math.Min(p.depth, p.tokens+p.rate*float64(to-p.refilled)/1e9), to
	}
	if now >= p.until {
		p.tokens = 0
	}
	if now >= p.unitsUntil {
		p.units = 0
	}
}

func (h *hotRates) call(i int) {
	p, now := &h.procs[i], h.w.Now
	p.refill(now)
	p.offered++
	if p.tokens < 1 && p.units < 1 && !p.busy {
		ago, burst := now-p.asked, float64(h.w.s.Limit.Burst)
		surge := p.offered/math.Max(0.25, float64(ago)/1e9) > 2*p.demand+4
		plenty := p.view >= burst/4 && ago > int64(20*time.Millisecond)
		if !p.heard || plenty || now >= p.next && p.view >= 1 || surge && ago > ratesLife/8 {
			h.ask(i, true)
			return // the answer decides later calls
		}
	}
	switch {
	case p.tokens >= 1:
		p.tokens--
	case p.units >= 1:
		p.units--
	default:
		return
	}
	h.w.admit(i)
}

// renew exchanges the assignment before it ends.
func (h *hotRates) renew(i int) {
	p := &h.procs[i]
	wait := ratesLife * 15 / 16
	if ago := h.w.Now - p.asked; p.heard && ago < ratesLife*3/4 {
		wait -= ago
	} else if p.heard || p.offered > 0 {
		h.ask(i, false)
	}
	h.w.After(wait, func() { h.renew(i) })
}

// ask exchanges the assignment of a process. wants: a call waits, and gets the first unit.
func (h *hotRates) ask(i int, wants bool) {
	p := &h.procs[i]
	if p.busy {
		return
	}
	p.busy = true
	p.refill(h.w.Now)
	told := *p
	p.tokens, p.units, p.offered = 0, 0, 0
	var got ratesProcess
	h.w.exchange(&h.w.redis, func() { got = h.assign(told, wants) }, func() {
		got.offered, got.asked, got.heard = p.offered, h.w.Now, true
		*p = got
		if wants && p.units >= 1 {
			p.units--
			h.w.admit(i)
		}
	})
}

// assign runs an exchange in Redis: it replaces the sender's assignment by a new one.
func (h *hotRates) assign(p ratesProcess, wants bool) (got ratesProcess) {
	rate, burst, now := perSecond(h.w.s.Limit), float64(h.w.s.Limit.Burst), h.w.Now
	for h.generation < now/ratesLife {
		h.advance((h.generation + 1) * ratesLife)
		h.generation++
		h.rate, h.depth, h.offered = [2]float64{0, h.rate[0]}, [2]float64{0, h.depth[0]}, [2]float64{0, h.offered[0]}
	}
	h.advance(now)
	if age := h.generation - p.generation; p.heard && age < 2 {
		h.rate[age] -= p.rate
		h.depth[age] -= p.depth + p.booked
		h.level += p.tokens
		if p.booked > 0 {
			h.level += p.units
		}
	}
	span := float64(now-p.asked) / 1e9
	demand := p.offered / math.Max(0.25, span)
	if p.heard && span < 1 { // a short look: with the last estimate
		demand = p.offered + (1-span)*p.demand
	}
	h.offered[0] += demand * math.Min(1, span/(float64(ratesLife)/1e9))
	all := math.Max(h.offered[0], h.offered[1])
	fair := rate * demand / math.Max(all, 1e-9)
	if h.offered[1] == 0 {
		fair = math.Min(fair, rate/float64(len(h.procs)))
	}
	life := float64(ratesLife) / 1e9
	free := math.Max(0, rate-h.rate[0]-h.rate[1])
	assigned := math.Min(math.Min(demand+2*math.Sqrt(demand/life), fair), free)
	depth := math.Max(math.Min(4, math.Max(1, assigned*life)), assigned*math.Min(1, 0.3*burst/rate))
	if assigned <= 0 || h.depth[0]+h.depth[1]+depth > burst/2 {
		assigned, depth = 0, 0
	}
	h.rate[0], h.depth[0] = h.rate[0]+assigned, h.depth[0]+depth
	h.level = math.Min(h.level, burst-h.depth[0]-h.depth[1])
	units, booked, end := h.units(demand, assigned, fair, wants)
	h.level, h.depth[0] = h.level-units, h.depth[0]+booked
	got = ratesProcess{
		rate: assigned, depth: depth, units: units, booked: booked, refilled: now, until: now + ratesLife, unitsUntil: end,
		generation: h.generation, demand: demand, view: h.level, next: now + ratesLife,
	}
	if spare := rate - h.rate[0] - h.rate[1]; spare > rate/20 { // processes ask in turn for the rate that is not assigned
		turn := float64(len(h.procs)) * math.Max(1, units) / spare * rate / math.Max(all, 1)
		got.next = min(got.next, now+int64(turn*1e9))
	}
	return got
}

// units returns the units that a process gets beside its assignment, their record, and their end.
func (h *hotRates) units(demand, assigned, fair float64, wants bool) (units, booked float64, end int64) {
	rate, burst, now := perSecond(h.w.s.Limit), float64(h.w.s.Limit.Burst), h.w.Now
	life, free := float64(ratesLife)/1e9, math.Max(0, h.level)
	if !wants && free < burst/4 {
		return 0, 0, now
	}
	want := math.Max(0, demand-assigned) * life
	if wants {
		want = math.Max(1, want)
	}
	horizon := math.Min(life/4, 0.35*burst/rate)
	most := math.Max(free/(2*float64(len(h.procs))), math.Min(free, math.Max(1, math.Min(demand, fair)*horizon)))
	units = math.Max(0, math.Floor(math.Min(math.Min(want, most), burst-h.depth[0]-h.depth[1])))
	if free >= burst/4 {
		return units, units, now + ratesLife
	}
	full := (burst - h.depth[0] - h.depth[1] - h.level) / rate // a free lease ends before the bucket can be full
	return units, 0, now + min(ratesLife, int64(full*1e9))
}

// advance refills the level up to a time.
func (h *hotRates) advance(now int64) {
	room := float64(h.w.s.Limit.Burst) - h.depth[0] - h.depth[1]
	refill := (perSecond(h.w.s.Limit) - h.rate[0] - h.rate[1]) * float64(now-h.last) / 1e9
	h.level, h.last = math.Min(room, h.level+refill), now
}
