// Package metertest has a MeterProvider of OpenTelemetry for tests. It keeps instruments and values. The SDK is not a
// dependency of this module.
package metertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
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
	named   struct{ name string }
	counter struct {
		noop.Int64ObservableCounter
		named
	}
	gauge struct {
		noop.Int64ObservableGauge
		named
	}
	float64Gauge struct {
		noop.Float64ObservableGauge
		named
	}
	histogram[T int64 | float64] struct {
		embedded.Int64Histogram
		embedded.Float64Histogram
		p *Provider
		named
	}
)

func (n named) ofName() string { return n.name }

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
	return counter{named: named{name}}, m.p.note(name, "counter", metric.NewInt64ObservableCounterConfig(opts...))
}

func (m meter) Int64ObservableGauge(name string, opts ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return gauge{named: named{name}}, m.p.note(name, "gauge", metric.NewInt64ObservableGaugeConfig(opts...))
}

func (m meter) Float64ObservableGauge(name string, opts ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return float64Gauge{named: named{name}}, m.p.note(name, "gauge", metric.NewFloat64ObservableGaugeConfig(opts...))
}

func (m meter) Int64Histogram(name string, opts ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return histogram[int64]{p: m.p, named: named{name}},
		m.p.note(name, "histogram", metric.NewInt64HistogramConfig(opts...))
}

func (m meter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return histogram[float64]{p: m.p, named: named{name}},
		m.p.note(name, "histogram", metric.NewFloat64HistogramConfig(opts...))
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
func (p *Provider) note(name, kind string, config interface {
	Unit() string
	Description() string
},
) error {
	if p.Made == nil {
		p.Made = map[string]Instrument{}
	}
	if _, twice := p.Made[name]; twice {
		return fmt.Errorf("%s is made twice", name)
	}
	in := Instrument{Kind: kind, Unit: config.Unit(), Description: config.Description()}
	if h, ok := config.(interface{ ExplicitBucketBoundaries() []float64 }); ok {
		in.Bounds = h.ExplicitBucketBoundaries()
	}
	p.Made[name] = in
	if p.FailAt == name {
		return p.Fail
	}
	return nil
}

func (histogram[T]) Enabled(context.Context) bool { return true }

// Record implements metric.Int64Histogram and metric.Float64Histogram.
func (h histogram[T]) Record(_ context.Context, v T, opts ...metric.RecordOption) {
	at := attributed(h.name, metric.NewRecordConfig(opts).Attributes())
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	if h.p.recorded == nil {
		h.p.recorded = map[string][]float64{}
	}
	h.p.recorded[at] = append(h.p.recorded[at], float64(v))
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
func (p *Provider) Recorded() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.recorded))
}

type observer struct {
	noop.Observer
	seen map[string]float64 // by "name{attributes}"
}

func attributed(name string, set attribute.Set) string {
	return name + "{" + set.Encoded(attribute.DefaultEncoder()) + "}"
}

func (o observer) ObserveInt64(in metric.Int64Observable, v int64, opts ...metric.ObserveOption) {
	o.note(in, float64(v), opts)
}

func (o observer) ObserveFloat64(in metric.Float64Observable, v float64, opts ...metric.ObserveOption) {
	o.note(in, v, opts)
}

func (o observer) note(in metric.Observable, v float64, opts []metric.ObserveOption) {
	at := attributed(in.(interface{ ofName() string }).ofName(), metric.NewObserveConfig(opts).Attributes())
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
