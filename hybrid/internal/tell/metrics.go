package tell

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// scope is the name of the instrumentation scope in OpenTelemetry.
const scope = "github.com/hybridlimit/hybridlimit/hybrid"

// Attribute keys. A key of a limiter is never an attribute: it identifies a person or a customer, and there are too
// many keys.
const (
	AttrPolicy = attribute.Key("rate_limiting.policy")
	AttrClass  = attribute.Key("rate_limiting.class")
	AttrResult = attribute.Key("rate_limiting.result")
	AttrSource = attribute.Key("rate_limiting.source")
	AttrFate   = attribute.Key("rate_limiting.unit.fate")
	attrHub    = attribute.Key("rate_limiting.hub")
)

// Metrics exports the counters of a hub when a reader collects them. Only distributions are recorded, at each sync.
// Metrics do not make the fast path slower. Without a provider they do not make a sync slower either.
type Metrics struct {
	meter     metric.Meter
	in        Instruments
	made      []metric.Observable
	reg       metric.Registration
	Hub       attribute.Set // attributes of the hub's own series
	record    []metric.RecordOption
	Release   func() // releases the hub's name
	overshoot metric.Int64Histogram
	staleness metric.Float64Histogram
	duration  metric.Float64Histogram // nil, like the other histograms: no metrics provider
	batch     metric.Int64Histogram
}

// Instruments are the instruments that a hub observes when a reader collects.
type Instruments struct {
	Decisions, Units, Evictions, Refusals, Overflow, Invalid, Unrestored metric.Int64ObservableCounter
	Messages, Ops, Failures, Resyncs, Gaps, Unapplied                    metric.Int64ObservableCounter
	Fleet, Credit, Keys, Owed, Held, Breaker, Switched, Limited, Late    metric.Int64ObservableGauge
	Running, Booked, Waiting, Member                                     metric.Int64ObservableGauge
}

// Bounds of buckets. The first bucket of overshoot holds the syncs that found no debt. The last bound must lie above
// the values that alerts compare with, which are (N-1)·C of large limits. The staleness of a key in use is about T:
// from a few ms to the 5 s after which a denial is checked again. An older view means that the key was idle.
var (
	overshootBounds = []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7}
	stalenessBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600}
	// A full batch keeps Redis busy for 1 ms. MaxWait, with which alerts compare, is 20 ms; SyncTimeout is 0.25 s.
	durationBounds = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1}
	batchBounds    = []float64{1, 2, 4, 8, 16, 32, 64} // up to wire.MaxOps
)

// Histograms records for one limiter; nil: no metrics provider. The options are made once and passed as they are, so
// that recording allocates nothing.
type Histograms struct {
	Overshoot metric.Int64Histogram
	Staleness metric.Float64Histogram
	policy    []metric.RecordOption
}

// Histograms returns the distributions of a limiter with these attributes.
func (m *Metrics) Histograms(of ...attribute.KeyValue) *Histograms {
	if m.overshoot == nil {
		return nil
	}
	return &Histograms{m.overshoot, m.staleness, []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(of...))}}
}

// The two methods below use context.Background: a sync has no single caller whose context could add anything.

// Overshot records the debt in an answer.
func (h *Histograms) Overshot(units int64) {
	if h != nil {
		h.Overshoot.Record(context.Background(), units, h.policy...)
	}
}

// Stale records the age of a view; negative: there is none.
func (h *Histograms) Stale(ns int64) {
	if h != nil && ns >= 0 {
		h.Staleness.Record(context.Background(), float64(ns)/1e9, h.policy...)
	}
}

// synced records a batch of syncs, or a direct call.
func (m *Metrics) synced(ctx context.Context, took time.Duration, ops int) {
	if m.duration != nil {
		m.duration.Record(ctx, took.Seconds(), m.record...)
		m.batch.Record(ctx, int64(ops), m.record...)
	}
}

// NewMetrics makes the instruments of a hub. With a nil provider they record nothing.
func NewMetrics(provider metric.MeterProvider, hub string) (*Metrics, error) {
	if provider == nil {
		return &Metrics{Release: func() {}}, nil
	}
	m := provider.Meter(scope)
	out := &Metrics{meter: m}
	in := &out.in
	var first error
	counter := func(name, unit, what string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		first = cmp.Or(first, err)
		out.made = append(out.made, c)
		return c
	}
	gauge := func(name, unit, what string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		first = cmp.Or(first, err)
		out.made = append(out.made, g)
		return g
	}
	in.Decisions = counter("rate_limiting.decisions", "{request}", "Decisions by policy, result and source.")
	in.Units = counter("rate_limiting.units", "{unit}", "Units by fate.")
	in.Messages = counter("rate_limiting.sync.messages", "{message}",
		"Commands that the hub sent to Redis. For messages per decision, divide by the sum of rate_limiting.decisions over all policies of the hub, because they share messages.")
	in.Ops = counter("rate_limiting.sync.ops", "{op}",
		"Syncs and exact calls of one key, each counted once even if it was sent several times. For ops per decision, divide by rate_limiting.decisions of the same policy.")
	in.Failures = counter("rate_limiting.sync.failures", "{message}", "Batches of syncs and exact calls that got no answer.")
	in.Resyncs = counter("rate_limiting.sync.resyncs", "{key}", "Keys synced because Redis had lost its state, or might have lost it.")
	in.Gaps = counter("rate_limiting.sync.gaps", "{message}", "Answers showing that Redis lost an earlier sync.")
	in.Unapplied = counter("rate_limiting.sync.refused", "{op}", "Keys whose sync Redis will never apply; the units in that sync are lost.")
	in.Evictions = counter("rate_limiting.evictions", "{key}", "Keys forgotten to make room for others.")
	in.Invalid = counter("rate_limiting.limit.invalid", "{answer}", "Answers of LimitFor about a key in memory that are not valid; the key keeps its limit.")
	in.Unrestored = counter("rate_limiting.restore.failures", "{question}", "Questions to Restore without an answer that Redis has heard; units of the key's period may be used again.")
	in.Refusals = counter("rate_limiting.refusals", "{key}", "Keys that were not kept, because memory was full of keys that owe.")
	in.Overflow = counter("rate_limiting.overflow", "{request}", "Fallback decisions for keys without room in memory.")
	in.Fleet = gauge("rate_limiting.fleet.size", "{process}", "N: number of processes that share the limit.")
	in.Credit = gauge("rate_limiting.credit", "{unit}", "C: units of a key that a process may admit before it tells Redis; 0 while N is unknown.")
	in.Keys = gauge("rate_limiting.keys", "{key}", "Keys in memory.")
	in.Owed = gauge("rate_limiting.owed", "{unit}", "Units that were admitted and that Redis has not acknowledged, minus the units given back.")
	in.Held = gauge("rate_limiting.held", "{unit}", "Leased units that the process holds.")
	in.Running = gauge("rate_limiting.permits.running", "{permit}", "Permits that running calls of the process use.")
	in.Booked = gauge("rate_limiting.permits.held", "{permit}", "Permits that Redis has for the process: for running calls, and for calls that will come soon.")
	in.Waiting = gauge("rate_limiting.permits.waiting", "{permit}", "Permits that waiting calls of the process need.")
	in.Member = gauge("rate_limiting.permits.member", "{state}", "1 while the process may use the permits that it holds, because its heartbeat was answered in the last 1.8 s; 0 otherwise.")
	in.Late = gauge("rate_limiting.sync.behind", "{state}", "1 while non-urgent syncs wait longer than SyncInterval, because there are more syncs than a connection can send in half of its time; 0 otherwise.")
	in.Breaker = gauge("rate_limiting.breaker.state", "{state}", "State of the breaker: 0 closed, 1 half-open, 2 open: decisions are made without Redis.")
	in.Limited = gauge("rate_limiting.limit.source", "{state}", "Source of the limit in force: 0 Config, 1 settings, 2 fleet, 3 SetLimit.")
	in.Switched = gauge("rate_limiting.switch", "{state}", "Switch in force: 0 normal, 1 shadow, 2 local only, 3 allow all, 4 deny all.")
	var err error
	out.overshoot, err = m.Int64Histogram("rate_limiting.overshoot", metric.WithUnit("{unit}"),
		metric.WithDescription("Debt in Redis's answer to an op: the units that the fleet had admitted beyond the limit, rounded up; 0 without debt."),
		metric.WithExplicitBucketBoundaries(overshootBounds...))
	first = cmp.Or(first, err)
	out.staleness, err = m.Float64Histogram("rate_limiting.staleness", metric.WithUnit("s"),
		metric.WithDescription("Time from the receipt of Redis's last answer for a key to the making of the key's next sync."),
		metric.WithExplicitBucketBoundaries(stalenessBounds...))
	first = cmp.Or(first, err)
	out.duration, err = m.Float64Histogram("rate_limiting.sync.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the sending of a batch of syncs or an exact call to its answer, or until it is given up."),
		metric.WithExplicitBucketBoundaries(durationBounds...))
	first = cmp.Or(first, err)
	out.batch, err = m.Int64Histogram("rate_limiting.sync.batch.size", metric.WithUnit("{op}"),
		metric.WithDescription("Keys in a batch of syncs, recorded with each attempt; 1 for an exact call."),
		metric.WithExplicitBucketBoundaries(batchBounds...))
	first = cmp.Or(first, err)
	if first != nil {
		return nil, first
	}
	hub, out.Release = named(provider, hub)
	out.Hub = attribute.NewSet(attrHub.String(hub))
	out.record = []metric.RecordOption{metric.WithAttributeSet(out.Hub)}
	return out, nil
}

// Register starts the observation of a hub by observe. A reader may collect at once.
func (m *Metrics) Register(observe func(metric.Observer, *Instruments)) (err error) {
	if m.made == nil {
		return nil
	}
	m.reg, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		observe(o, &m.in)
		return nil
	}, m.made...)
	return err
}

// Close ends the observation and releases the name of the hub.
func (m *Metrics) Close() error {
	defer m.Release()
	if m.reg == nil {
		return nil
	}
	return m.reg.Unregister()
}

// This file gives the hubs of one MeterProvider different names. Otherwise their metrics without a policy would be one
// series, and a reader would see only the last observation.

// hubNames holds the names of the open hubs.
var hubNames = struct {
	sync.Mutex
	taken map[hubName]bool
}{taken: map[hubName]bool{}}

type hubName struct {
	provider metric.MeterProvider
	name     string
}

// named takes a name for a hub's metrics until release. If an open hub has that name, the new one gets a number. The
// numbers are the same after each restart if the hubs are made in the same order. A provider that cannot be compared
// counts as a new one each time.
func named(provider metric.MeterProvider, name string) (got string, release func()) {
	if provider == nil || !reflect.ValueOf(provider).Comparable() {
		return name, func() {}
	}
	hubNames.Lock()
	defer hubNames.Unlock()
	at := hubName{provider, name}
	for n := 2; hubNames.taken[at]; n++ {
		at.name = fmt.Sprintf("%s-%d", name, n)
	}
	hubNames.taken[at] = true
	return at.name, sync.OnceFunc(func() {
		hubNames.Lock()
		defer hubNames.Unlock()
		delete(hubNames.taken, at)
	})
}
