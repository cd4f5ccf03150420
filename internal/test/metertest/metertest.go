// Package metertest has a MeterProvider of OpenTelemetry for tests. It keeps instruments and values. The SDK is not a
// dependency of this module.
package metertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Provider is a MeterProvider. It has room for one callback. The zero Provider is ready to use.
type Provider struct {
	noop.MeterProvider

	Scopes  []string              // of the meters, in the order in which they were made
	Made    map[string]Instrument // by name
	Fail    error                 // returned for the instrument
	FailAt  string                // with this name
	Removed int                   // number of callbacks that were unregistered

	registered sync.RWMutex // held for reading while the callback runs: Unregister waits, as in the SDK
	callback   metric.Callback

	mu       sync.Mutex
	recorded map[string][]float64 // values of histograms by "name{attributes}"
}

// Instrument has the arguments with which an instrument was made.
type Instrument struct {
	Kind, Unit, Description string // Kind: "counter", "gauge" or "histogram"
	Bounds                  []float64
}

// Described returns "kind | unit | description" of each instrument, by name.
func (p *Provider) Described() map[string]string {
	all := make(map[string]string, len(p.Made))
	for name, in := range p.Made {
		all[name] = in.Kind + " | " + in.Unit + " | " + in.Description
	}
	return all
}

// These instruments know their names.
type (
	counter struct {
		noop.Int64ObservableCounter
		name string
	}
	gauge struct {
		noop.Int64ObservableGauge
		name string
	}
	float64Gauge struct {
		noop.Float64ObservableGauge
		name string
	}
	int64Histogram struct {
		noop.Int64Histogram
		histogram
	}
	float64Histogram struct {
		noop.Float64Histogram
		histogram
	}
	histogram struct {
		p    *Provider
		name string
	}
)

// Meter implements metric.MeterProvider.
func (p *Provider) Meter(name string, _ ...metric.MeterOption) metric.Meter {
	p.Scopes = append(p.Scopes, name)
	return meter{p: p}
}

type meter struct {
	noop.Meter
	p *Provider
}

func (m meter) Int64ObservableCounter(name string, opts ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	c := metric.NewInt64ObservableCounterConfig(opts...)
	return counter{name: name}, m.p.note(name, Instrument{Kind: "counter", Unit: c.Unit(), Description: c.Description()})
}

func (m meter) Int64ObservableGauge(name string, opts ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	c := metric.NewInt64ObservableGaugeConfig(opts...)
	return gauge{name: name}, m.p.note(name, Instrument{Kind: "gauge", Unit: c.Unit(), Description: c.Description()})
}

func (m meter) Float64ObservableGauge(name string, opts ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	c := metric.NewFloat64ObservableGaugeConfig(opts...)
	return float64Gauge{name: name}, m.p.note(name, Instrument{Kind: "gauge", Unit: c.Unit(), Description: c.Description()})
}

func (m meter) Int64Histogram(name string, opts ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	c := metric.NewInt64HistogramConfig(opts...)
	return int64Histogram{histogram: histogram{m.p, name}},
		m.p.note(name, Instrument{"histogram", c.Unit(), c.Description(), c.ExplicitBucketBoundaries()})
}

func (m meter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	c := metric.NewFloat64HistogramConfig(opts...)
	return float64Histogram{histogram: histogram{m.p, name}},
		m.p.note(name, Instrument{"histogram", c.Unit(), c.Description(), c.ExplicitBucketBoundaries()})
}

func (m meter) RegisterCallback(f metric.Callback, made ...metric.Observable) (metric.Registration, error) {
	observable := 0
	for _, in := range m.p.Made {
		if in.Kind != "histogram" {
			observable++
		}
	}
	if len(made) != observable {
		return nil, fmt.Errorf("%d instruments registered of %d made", len(made), observable)
	}
	m.p.registered.Lock()
	defer m.p.registered.Unlock()
	m.p.callback = f
	return registration{p: m.p}, nil
}

type registration struct {
	noop.Registration
	p *Provider
}

func (r registration) Unregister() error {
	r.p.registered.Lock()
	defer r.p.registered.Unlock()
	r.p.Removed++
	r.p.callback = nil
	return nil
}

// Registered reports whether there is a callback.
func (p *Provider) Registered() bool {
	p.registered.RLock()
	defer p.registered.RUnlock()
	return p.callback != nil
}

// note keeps an instrument. It returns the error with which the instrument must fail.
func (p *Provider) note(name string, in Instrument) error {
	if p.Made == nil {
		p.Made = map[string]Instrument{}
	}
	if _, twice := p.Made[name]; twice {
		return fmt.Errorf("%s is made twice", name)
	}
	p.Made[name] = in
	if p.FailAt == name {
		return p.Fail
	}
	return nil
}

// Record implements metric.Int64Histogram.
func (h int64Histogram) Record(_ context.Context, v int64, opts ...metric.RecordOption) {
	h.record(float64(v), opts)
}

// Record implements metric.Float64Histogram.
func (h float64Histogram) Record(_ context.Context, v float64, opts ...metric.RecordOption) {
	h.record(v, opts)
}

func (h histogram) record(v float64, opts []metric.RecordOption) {
	at := named(h.name, metric.NewRecordConfig(opts).Attributes())
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	if h.p.recorded == nil {
		h.p.recorded = map[string][]float64{}
	}
	h.p.recorded[at] = append(h.p.recorded[at], v)
}

// Take returns, in order of size, the values that a histogram has recorded since the last Take. at is
// "name{attributes}".
func (p *Provider) Take(at string) []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.recorded[at]
	delete(p.recorded, at)
	slices.Sort(got)
	return got
}

// Recorded returns the histograms with values since the last Take, as "name{attributes}", sorted.
func (p *Provider) Recorded() (at []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.recorded {
		at = append(at, name)
	}
	slices.Sort(at)
	return at
}

type observer struct {
	noop.Observer
	seen map[string]float64 // by "name{attributes}"
}

func named(name string, set attribute.Set) string {
	return name + "{" + set.Encoded(attribute.DefaultEncoder()) + "}"
}

func (o observer) ObserveInt64(in metric.Int64Observable, v int64, opts ...metric.ObserveOption) {
	var name string
	switch in := in.(type) {
	case counter:
		name = in.name
	case gauge:
		name = in.name
	}
	o.note(name, float64(v), opts)
}

func (o observer) ObserveFloat64(in metric.Float64Observable, v float64, opts ...metric.ObserveOption) {
	o.note(in.(float64Gauge).name, v, opts)
}

func (o observer) note(name string, v float64, opts []metric.ObserveOption) {
	at := named(name, metric.NewObserveConfig(opts).Attributes())
	if _, twice := o.seen[at]; twice {
		at += " AGAIN"
	}
	o.seen[at] = v
}

// Collect is CollectFloats for instruments whose values are integers.
func (p *Provider) Collect(tb testing.TB) map[string]int64 {
	tb.Helper()
	all := map[string]int64{}
	for at, v := range p.CollectFloats(tb) {
		all[at] = int64(v)
	}
	return all
}

// CollectFloats calls the callback as a reader does, and returns the observed values by "name{attributes}". Without a
// callback there are none.
func (p *Provider) CollectFloats(tb testing.TB) map[string]float64 {
	tb.Helper()
	o := observer{seen: map[string]float64{}}
	p.registered.RLock()
	defer p.registered.RUnlock()
	if p.callback == nil {
		return o.seen
	}
	if err := p.callback(tb.Context(), o); err != nil {
		tb.Fatal(err)
	}
	return o.seen
}
