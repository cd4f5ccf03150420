package hybrid

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
)

// scope names this library to OpenTelemetry.
const scope = "github.com/hybridlimit/hybridlimit/hybrid"

// Attribute keys. A limiter's key is never an attribute: it is somebody's
// identity, and there are too many.
const (
	attrPolicy = attribute.Key("rate_limiting.policy")
	attrResult = attribute.Key("rate_limiting.result")
	attrSource = attribute.Key("rate_limiting.source")
	attrFate   = attribute.Key("rate_limiting.unit.fate")
)

// metrics exports a hub's counters when they are collected; between
// collections it costs nothing, and without a provider nothing at all.
type metrics struct {
	reg metric.Registration
}

type instruments struct {
	decisions, units, messages, ops, failures, resyncs metric.Int64ObservableCounter
	fleet, keys, breaker                               metric.Int64ObservableGauge
}

func newMetrics(h *Hub) (*metrics, error) {
	if h.cfg.MeterProvider == nil {
		return &metrics{}, nil
	}
	m := h.cfg.MeterProvider.Meter(scope)
	var in instruments
	var made []metric.Observable
	var first error
	counter := func(name, unit, what string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		if first == nil {
			first = err
		}
		made = append(made, c)
		return c
	}
	gauge := func(name, unit, what string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		if first == nil {
			first = err
		}
		made = append(made, g)
		return g
	}
	in.decisions = counter("rate_limiting.decisions", "{request}", "Decisions by policy, result and source.")
	in.units = counter("rate_limiting.units", "{unit}", "Units by what became of them.")
	in.messages = counter("rate_limiting.sync.messages", "{message}", "Commands sent to Redis.")
	in.ops = counter("rate_limiting.sync.ops", "{op}", "Keys synced or asked for.")
	in.failures = counter("rate_limiting.sync.failures", "{message}", "Syncs without an answer.")
	in.resyncs = counter("rate_limiting.sync.resyncs", "{key}", "Keys synced because Redis had, or might have, lost its state.")
	in.fleet = gauge("rate_limiting.fleet.size", "{process}", "Processes that share the limit.")
	in.keys = gauge("rate_limiting.keys", "{key}", "Keys in memory.")
	in.breaker = gauge("rate_limiting.breaker.state", "{state}", "0 closed, 1 half-open, 2 open: deciding locally.")
	if first != nil {
		return nil, first
	}
	reg, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		h.observe(o, &in)
		return nil
	}, made...)
	return &metrics{reg: reg}, err
}

func (h *Hub) observe(o metric.Observer, in *instruments) {
	s := h.Stats()
	o.ObserveInt64(in.messages, int64(s.Messages))
	o.ObserveInt64(in.ops, int64(s.Ops))
	o.ObserveInt64(in.failures, int64(s.Failures))
	o.ObserveInt64(in.breaker, int64(s.Breaker))
	for _, l := range h.all() {
		policy := attrPolicy.String(l.cfg.Name)
		of := func(kv ...attribute.KeyValue) metric.MeasurementOption {
			return metric.WithAttributes(append(kv, policy)...)
		}
		c := &l.count
		for i := range hybridlimit.NumSources {
			src := attrSource.String(hybridlimit.Source(i).String())
			if n := c.allowed[i].Load(); n > 0 {
				o.ObserveInt64(in.decisions, n, of(attrResult.String("allowed"), src))
			}
			if n := c.denied[i].Load(); n > 0 {
				o.ObserveInt64(in.decisions, n, of(attrResult.String("denied"), src))
			}
		}
		o.ObserveInt64(in.units, c.admitted.Load(), of(attrFate.String("admitted")))
		o.ObserveInt64(in.units, c.acked.Load(), of(attrFate.String("paid")))
		o.ObserveInt64(in.units, c.debited.Load(), of(attrFate.String("granted")))
		o.ObserveInt64(in.units, c.expired.Load(), of(attrFate.String("expired")))
		o.ObserveInt64(in.units, c.lost.Load(), of(attrFate.String("lost")))
		o.ObserveInt64(in.units, c.dropped.Load(), of(attrFate.String("dropped")))
		o.ObserveInt64(in.units, c.forgiven.Load(), of(attrFate.String("forgiven")))
		o.ObserveInt64(in.resyncs, c.resynced.Load(), of())
		o.ObserveInt64(in.fleet, l.fleet.size(), of())
		o.ObserveInt64(in.keys, int64(l.store.len()), of())
	}
}

func (m *metrics) close() error {
	if m.reg == nil {
		return nil
	}
	return m.reg.Unregister()
}
