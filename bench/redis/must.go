package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
)

// must is a required figure.
type must struct {
	what  string
	want  string
	got   float64
	bound benchkit.Bound
}

func (m must) reached() bool { return m.bound.Holds(m.got) }

func atMost(v float64) benchkit.Bound  { return benchkit.Bound{Value: v, AtMost: true} }
func atLeast(v float64) benchkit.Bound { return benchkit.Bound{Value: v} }

// musts returns the required figures.
func (r *results) musts() (all []must) {
	if c := r.cost(protocol.MaxOps); c != nil {
		all = append(all, must{
			what: fmt.Sprintf("Redis CPU: an op in a batch of %d / an op in a pipeline", c.size),
			want: "≤ 0.65", bound: atMost(0.65), got: c.ratio(),
		})
	}
	hybrid, rival := r.decision("hybrid"), r.decision("redis_rate")
	if hybrid != nil && rival != nil {
		all = append(all, must{
			what: "hybrid, hot key: messages per decision", want: "≤ 0.002", bound: atMost(1.0 / 500),
			got: hybrid.cost.median(func(d perDecision) float64 { return d.messages }),
		}, must{
			what: fmt.Sprintf("decisions/s on the hot key, %d goroutines: hybrid / redis_rate", callers), want: "≥ 300", bound: atLeast(300),
			got: hybrid.cost.median(rateOf) / rival.cost.median(rateOf),
		})
	}
	all = append(all, r.beatMusts()...)
	all = append(all, r.exactMusts()...)
	all = append(all, r.fleetMusts()...)
	if one := r.cost(1); one != nil {
		all = append(all, must{
			what: "bytes to and from Redis: a sync of one op, with its envelope", want: "≤ 250", bound: atMost(250),
			got: one.batch.median(func(c opCost) float64 { return c.sent + c.received }),
		})
	}
	if len(r.churn) >= 2 {
		// By CPU time, because these rounds are not interleaved.
		process := func(i insertion) float64 { return i.process }
		all = append(all, must{
			what: fmt.Sprintf("CPU of an insertion of a key into a full cache: %s / golang-lru", r.churn[1].name), want: "≤ 3.5", bound: atMost(3.5),
			got: r.churn[1].cost.median(process) / r.churn[0].cost.median(process),
		})
	}
	if len(r.survival) == 2 {
		all = append(all, must{
			what: "keys in use that a scan evicted: hybrid / golang-lru", want: "≤ 1", bound: atMost(1),
			got: r.survival[1].missed.median(same) / r.survival[0].missed.median(same),
		})
	}
	return all
}

// exactMusts returns the required figures of decisions that ask Redis each time.
func (r *results) exactMusts() []must {
	ours, rival := r.under("global", onOwnKeys), r.under("redis_rate", onOwnKeys)
	if ours == nil || rival == nil {
		return nil
	}
	cpu, p50 := func(d perDecision) float64 { return d.cpu }, func(c oneCaller) float64 { return c.p50 }
	return []must{
		{
			what: fmt.Sprintf("Redis CPU of a decision on %s: global / redis_rate", onOwnKeys), want: "≤ 1", bound: atMost(1),
			got: ours.cost.median(cpu) / rival.cost.median(cpu),
		},
		{
			what: fmt.Sprintf("decisions/s on %s, %d goroutines: global / redis_rate", onOwnKeys, callers), want: "≥ 1.5", bound: atLeast(1.5),
			got: ours.cost.median(rateOf) / rival.cost.median(rateOf),
		},
		{
			what: fmt.Sprintf("p50 of a decision on %s, one caller: global / redis_rate", onOwnKeys), want: "≤ 1.1", bound: atMost(1.1),
			got: ours.single.median(p50) / rival.single.median(p50),
		},
		{
			// Whole allocations, as in go test. The rest are those of other goroutines.
			what: "allocations of a decision of global", want: "≤ 12", bound: atMost(12), got: math.Floor(ours.single.median(mallocsOf)),
		},
		{
			what: "bytes to and from Redis: a decision of global", want: "≤ 250", bound: atMost(250),
			got: ours.cost.median(func(d perDecision) float64 { return d.sent + d.received }),
		},
	}
}

// fleetMusts returns the required figures of many keys with few calls.
func (r *results) fleetMusts() []must {
	if len(r.fleets) == 0 {
		return nil
	}
	astray := 0.0
	for _, t := range r.fleets {
		for _, f := range t.rows {
			astray = max(astray, f.cost.median(func(c fewCalls) float64 { return c.fails + c.without }))
		}
	}
	all := []must{{
		// Otherwise the costs are not those of decisions that Redis made.
		what: "services: errors and decisions without Redis, the largest share of a limiter", want: "≤ 0.01", bound: atMost(0.01),
		got: astray,
	}}
	for _, m := range fleetBounds {
		for _, t := range r.fleets {
			ours, rival := t.row(m.limiter), t.row("redis_rate")
			if t.size.name != m.load || ours == nil || rival == nil {
				continue
			}
			got, what := ours.cost.median(m.of), fmt.Sprintf("%s: %s: %s", m.load, m.what, m.limiter)
			if !m.absolute {
				got, what = got/rival.cost.median(m.of), what+" / redis_rate"
			}
			all = append(all, must{what: what, want: fmt.Sprintf("≤ %g", m.bound), bound: atMost(m.bound), got: got})
		}
	}
	return all
}

// fleetBounds are the required figures of fleets, most of them as ratios to redis_rate.
var fleetBounds = func() []fleetBound {
	cpu, p50 := func(c fewCalls) float64 { return c.cpu }, func(c fewCalls) float64 { return c.p50 }
	messages := func(c fewCalls) float64 { return c.messages }
	return []fleetBound{
		{"2000 calls a second", "hybrid", "Redis CPU", cpu, 0.5, false},
		{"2000 calls a second", "hybrid", "messages", messages, 0.2, true},
		{"2000 calls a second", "hybrid", "p50", p50, 0.2, false},
		{"2000 calls a second", "hybrid, deferred", "Redis CPU", cpu, 0.4, false},
		{"2000 calls a second", "hybrid, strict", "Redis CPU", cpu, 1, false},
		{"500 calls a second", "hybrid", "Redis CPU", cpu, 0.9, false},
		{"20 000 calls a second", "hybrid", "Redis CPU", cpu, 0.4, false},
		{"Zipf", "hybrid", "Redis CPU", cpu, 0.5, false},
		{"two limits", "hybrid", "Redis CPU", cpu, 0.6, false},
		{"two limits", "global", "Redis CPU", cpu, 0.8, false},
		{"two limits", "global", "p50", p50, 1.1, false},
		{"few calls", "hybrid", "Redis CPU", cpu, 1, false},
		{"few calls", "hybrid", "p50", p50, 1.3, false},
	}
}()

// fleetBound is a required figure of a fleet.
type fleetBound struct {
	load, limiter, what string
	of                  func(fewCalls) float64
	bound               float64
	absolute            bool // not a ratio
}

// decision returns the row of a limiter on the hot key, which is its first row.
func (r *results) decision(name string) *decisionRow {
	for _, d := range r.decisions {
		if d.name == name {
			return d
		}
	}
	return nil
}

// under returns the row of a limiter under a load.
func (r *results) under(name, load string) *decisionRow {
	for _, d := range r.decisions {
		if d.name == name && d.load == load {
			return d
		}
	}
	return nil
}

// cost returns the row of a batch size.
func (r *results) cost(size int) *costRow {
	for i := range r.costs {
		if r.costs[i].size == size {
			return &r.costs[i]
		}
	}
	return nil
}

// missed returns an error for each required figure that was not reached.
func (r *results) missed() error {
	var bad []error
	for _, m := range r.musts() {
		if !m.reached() {
			bad = append(bad, fmt.Errorf("%s: %.4g, want %s", m.what, m.got, m.want))
		}
	}
	return errors.Join(bad...)
}

func rateOf(d perDecision) float64  { return d.perSecond }
func mallocsOf(c oneCaller) float64 { return c.mallocs }
func cpuOf(c opCost) float64        { return c.cpu }
func same(v float64) float64        { return v }

// ratio returns the cost of an op in a batch divided by its cost alone. Both were measured in the same rounds.
func (c costRow) ratio() float64 { return c.batch.median(cpuOf) / c.pipeline.median(cpuOf) }
