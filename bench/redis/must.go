package main

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/benchkit"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
)

// must is a figure that has to be reached.
type must struct {
	what  string
	want  string
	got   float64
	bound benchkit.Bound
}

func (m must) reached() bool { return m.bound.Holds(m.got) }

func atMost(v float64) benchkit.Bound  { return benchkit.Bound{Value: v, AtMost: true} }
func atLeast(v float64) benchkit.Bound { return benchkit.Bound{Value: v} }

// musts are all of them.
func (r *results) musts() (all []must) {
	for _, c := range r.costs {
		if c.size == protocol.MaxOps {
			all = append(all, must{
				what: fmt.Sprintf("Redis CPU of an op in a batch of %d, of one in a pipeline", c.size),
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
			what: "keys in use that a scan drove out: hybrid / golang-lru", want: "≤ 1.02", bound: atMost(1.02),
			got: r.survival[1].missed.median(same) / r.survival[0].missed.median(same),
		})
	}
	return all
}

// decision is a limiter's row on the hot key, which comes first.
func (r *results) decision(name string) *decisionRow {
	for _, d := range r.decisions {
		if d.name == name {
			return d
		}
	}
	return nil
}

// missed says what was not reached.
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

// ratio is what an op costs Redis in a batch, of what it costs alone, by
// rounds: both were measured within the same moments.
func (c costRow) ratio() float64 { return c.batch.median(cpuOf) / c.pipeline.median(cpuOf) }
