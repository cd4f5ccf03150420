package main

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/benchkit"
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
	for _, c := range r.costs {
		if c.size == protocol.MaxOps {
			all = append(all, must{
				what: fmt.Sprintf("Redis CPU: an op in a batch of %d / an op in a pipeline", c.size),
				want: "≤ 0.65", bound: atMost(0.65), got: c.ratio(),
			})
		}
	}
	hybrid, rival := r.decision("hybrid"), r.decision("redis_rate")
	if hybrid != nil && rival != nil {
		all = append(all, must{
			what: "hybrid, hot key: messages per decision", want: "≤ 1/500 = 0.002", bound: atMost(1.0 / 500),
			got: hybrid.cost.median(func(d perDecision) float64 { return d.messages }),
		}, must{
			what: fmt.Sprintf("decisions/s on the hot key, %d goroutines: hybrid / redis_rate", callers), want: "≥ 300", bound: atLeast(300),
			got: hybrid.cost.median(rateOf) / rival.cost.median(rateOf),
		})
	}
	if len(r.survival) == 2 {
		all = append(all, must{
			what: "keys in use that a scan evicted: hybrid / golang-lru", want: "≤ 1.02", bound: atMost(1.02),
			got: r.survival[1].missed.median(same) / r.survival[0].missed.median(same),
		})
	}
	return all
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

func rateOf(d perDecision) float64 { return d.perSecond }
func cpuOf(c opCost) float64       { return c.cpu }
func same(v float64) float64       { return v }

// ratio returns the cost of an op in a batch divided by its cost alone. Both
// were measured in the same rounds.
func (c costRow) ratio() float64 { return c.batch.median(cpuOf) / c.pipeline.median(cpuOf) }
