package hybrid_test

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

// meters is a MeterProvider that keeps instruments and values. The SDK is not a
// dependency of this module.
type meters struct {
	noop.MeterProvider

	scopes   []string
	made     map[string]instrument
	callback metric.Callback
	fail     error  // returned for the instrument
	failAt   string // with this name
	removed  int

	mu       sync.Mutex
	recorded map[string][]float64 // values of histograms by "name{attributes}"
}

// instrument has the arguments with which an instrument was made.
type instrument struct {
	kind, unit, description string
	bounds                  []float64
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
	int64Histogram struct {
		noop.Int64Histogram
		histogram
	}
	float64Histogram struct {
		noop.Float64Histogram
		histogram
	}
	histogram struct {
		m    *meters
		name string
	}
)

func (m *meters) Meter(name string, _ ...metric.MeterOption) metric.Meter {
	m.scopes = append(m.scopes, name)
	return meter{m: m}
}

type meter struct {
	noop.Meter
	m *meters
}

func (m meter) Int64ObservableCounter(name string, opts ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	cfg := metric.NewInt64ObservableCounterConfig(opts...)
	return counter{name: name}, m.m.note(name, instrument{kind: "counter", unit: cfg.Unit(), description: cfg.Description()})
}

func (m meter) Int64ObservableGauge(name string, opts ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	cfg := metric.NewInt64ObservableGaugeConfig(opts...)
	return gauge{name: name}, m.m.note(name, instrument{kind: "gauge", unit: cfg.Unit(), description: cfg.Description()})
}

func (m meter) Int64Histogram(name string, opts ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	cfg := metric.NewInt64HistogramConfig(opts...)
	return int64Histogram{histogram: histogram{m.m, name}},
		m.m.note(name, instrument{"histogram", cfg.Unit(), cfg.Description(), cfg.ExplicitBucketBoundaries()})
}

func (m meter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	cfg := metric.NewFloat64HistogramConfig(opts...)
	return float64Histogram{histogram: histogram{m.m, name}},
		m.m.note(name, instrument{"histogram", cfg.Unit(), cfg.Description(), cfg.ExplicitBucketBoundaries()})
}

func (m meter) RegisterCallback(f metric.Callback, made ...metric.Observable) (metric.Registration, error) {
	observable := 0
	for _, in := range m.m.made {
		if in.kind != "histogram" {
			observable++
		}
	}
	if len(made) != observable {
		return nil, fmt.Errorf("%d instruments registered of %d made", len(made), observable)
	}
	m.m.callback = f
	return registration{m: m.m}, nil
}

type registration struct {
	noop.Registration
	m *meters
}

func (r registration) Unregister() error { r.m.removed++; r.m.callback = nil; return nil }

// note keeps an instrument. It returns the error with which the instrument must fail.
func (m *meters) note(name string, in instrument) error {
	if m.made == nil {
		m.made = map[string]instrument{}
	}
	if _, twice := m.made[name]; twice {
		return fmt.Errorf("%s is made twice", name)
	}
	m.made[name] = in
	if m.failAt == name {
		return m.fail
	}
	return nil
}

// Record keeps a unit count.
func (h int64Histogram) Record(_ context.Context, v int64, opts ...metric.RecordOption) {
	h.record(float64(v), opts)
}

// Record keeps a time in seconds.
func (h float64Histogram) Record(_ context.Context, v float64, opts ...metric.RecordOption) {
	h.record(v, opts)
}

func (h histogram) record(v float64, opts []metric.RecordOption) {
	at := named(h.name, metric.NewRecordConfig(opts).Attributes())
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if h.m.recorded == nil {
		h.m.recorded = map[string][]float64{}
	}
	h.m.recorded[at] = append(h.m.recorded[at], v)
}

// take returns, in order of size, the values that a histogram has recorded since the
// last take.
func (m *meters) take(at string) []float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.recorded[at]
	delete(m.recorded, at)
	slices.Sort(got)
	return got
}

type observer struct {
	noop.Observer
	seen map[string]int64 // by "name{attributes}"
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
	at := named(name, metric.NewObserveConfig(opts).Attributes())
	if _, twice := o.seen[at]; twice {
		at += " AGAIN"
	}
	o.seen[at] = v
}

// collect calls the callback as a reader does, and returns the observed values.
func (m *meters) collect(t *testing.T) map[string]int64 {
	t.Helper()
	o := observer{seen: map[string]int64{}}
	if err := m.callback(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o.seen
}
