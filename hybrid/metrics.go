package hybrid

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
)

// scope is the name of the instrumentation scope in OpenTelemetry.
const scope = "github.com/hybridlimit/hybridlimit/hybrid"

// Attribute keys. A key of a limiter is never an attribute: it identifies a person or a customer, and there are too
// many keys.
const (
	attrPolicy = attribute.Key("rate_limiting.policy")
	attrClass  = attribute.Key("rate_limiting.class")
	attrResult = attribute.Key("rate_limiting.result")
	attrSource = attribute.Key("rate_limiting.source")
	attrFate   = attribute.Key("rate_limiting.unit.fate")
	attrHub    = attribute.Key("rate_limiting.hub")
)

// metrics exports the counters of a hub when a reader collects them. Only distributions are recorded, at each sync.
// Metrics do not make the fast path slower. Without a provider they do not make a sync slower either.
type metrics struct {
	meter     metric.Meter
	in        instruments
	made      []metric.Observable
	reg       metric.Registration
	hub       attribute.Set // attributes of the hub's own series
	record    []metric.RecordOption
	release   func() // releases the hub's name
	overshoot metric.Int64Histogram
	staleness metric.Float64Histogram
	duration  metric.Float64Histogram // nil, like the other histograms: no metrics provider
	batch     metric.Int64Histogram
}

type instruments struct {
	decisions, units, evictions, refusals, overflow, invalid          metric.Int64ObservableCounter
	messages, ops, failures, resyncs, gaps, unapplied                 metric.Int64ObservableCounter
	fleet, credit, keys, owed, held, breaker, switched, limited, late metric.Int64ObservableGauge
	running, booked, waiting, member                                  metric.Int64ObservableGauge
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

// histograms records for one limiter; nil: no metrics provider. The options are made once and passed as they are, so
// that recording allocates nothing.
type histograms struct {
	overshoot metric.Int64Histogram
	staleness metric.Float64Histogram
	policy    []metric.RecordOption
}

func (m *metrics) histograms(of ...attribute.KeyValue) *histograms {
	if m.overshoot == nil {
		return nil
	}
	return &histograms{m.overshoot, m.staleness, []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(of...))}}
}

// The two methods below use context.Background: a sync has no single caller whose context could add anything.

func (h *histograms) overshot(units int64) {
	if h != nil {
		h.overshoot.Record(context.Background(), units, h.policy...)
	}
}

func (h *histograms) stale(ns int64) {
	if h != nil && ns >= 0 {
		h.staleness.Record(context.Background(), float64(ns)/1e9, h.policy...)
	}
}

// synced records a batch of syncs, or a direct call.
func (m *metrics) synced(ctx context.Context, took time.Duration, ops int) {
	if m.duration != nil {
		m.duration.Record(ctx, took.Seconds(), m.record...)
		m.batch.Record(ctx, int64(ops), m.record...)
	}
}

// newMetrics makes the instruments of a hub. With a nil provider they record nothing.
func newMetrics(provider metric.MeterProvider, hub string) (*metrics, error) {
	if provider == nil {
		return &metrics{release: func() {}}, nil
	}
	m := provider.Meter(scope)
	out := &metrics{meter: m}
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
	in.decisions = counter("rate_limiting.decisions", "{request}", "Decisions by policy, result and source.")
	in.units = counter("rate_limiting.units", "{unit}", "Units by fate.")
	in.messages = counter("rate_limiting.sync.messages", "{message}",
		"Commands that the hub sent to Redis. For messages per decision, divide by the sum of rate_limiting.decisions over all policies of the hub, because they share messages.")
	in.ops = counter("rate_limiting.sync.ops", "{op}",
		"Syncs and exact calls of one key, each counted once even if it was sent several times. For ops per decision, divide by rate_limiting.decisions of the same policy.")
	in.failures = counter("rate_limiting.sync.failures", "{message}", "Batches of syncs and exact calls that got no answer.")
	in.resyncs = counter("rate_limiting.sync.resyncs", "{key}", "Keys synced because Redis had lost its state, or might have lost it.")
	in.gaps = counter("rate_limiting.sync.gaps", "{message}", "Answers showing that Redis lost an earlier sync.")
	in.unapplied = counter("rate_limiting.sync.refused", "{op}", "Keys whose sync Redis will never apply; the units in that sync are lost.")
	in.evictions = counter("rate_limiting.evictions", "{key}", "Keys forgotten to make room for others.")
	in.invalid = counter("rate_limiting.limit.invalid", "{answer}", "Answers of LimitFor about a key in memory that are not valid; the key keeps its limit.")
	in.refusals = counter("rate_limiting.refusals", "{key}", "Keys that were not kept, because memory was full of keys that owe.")
	in.overflow = counter("rate_limiting.overflow", "{request}", "Fallback decisions for keys without room in memory.")
	in.fleet = gauge("rate_limiting.fleet.size", "{process}", "N: number of processes that share the limit.")
	in.credit = gauge("rate_limiting.credit", "{unit}", "C: units of a key that a process may admit before it tells Redis; 0 while N is unknown.")
	in.keys = gauge("rate_limiting.keys", "{key}", "Keys in memory.")
	in.owed = gauge("rate_limiting.owed", "{unit}", "Units that were admitted and that Redis has not acknowledged, minus the units given back.")
	in.held = gauge("rate_limiting.held", "{unit}", "Leased units that the process holds.")
	in.running = gauge("rate_limiting.permits.running", "{permit}", "Permits that running calls of the process use.")
	in.booked = gauge("rate_limiting.permits.held", "{permit}", "Permits that Redis has for the process: for running calls, and for calls that will come soon.")
	in.waiting = gauge("rate_limiting.permits.waiting", "{permit}", "Permits that waiting calls of the process need.")
	in.member = gauge("rate_limiting.permits.member", "{state}", "1 while the process may use the permits that it holds, because its heartbeat was answered in the last 1.8 s; 0 otherwise.")
	in.late = gauge("rate_limiting.sync.behind", "{state}", "1 while non-urgent syncs wait longer than SyncInterval, because there are more syncs than a connection can send in half of its time; 0 otherwise.")
	in.breaker = gauge("rate_limiting.breaker.state", "{state}", "State of the breaker: 0 closed, 1 half-open, 2 open: decisions are made without Redis.")
	in.limited = gauge("rate_limiting.limit.source", "{state}", "Source of the limit in force: 0 Config, 1 settings, 2 fleet, 3 SetLimit.")
	in.switched = gauge("rate_limiting.switch", "{state}", "Switch in force: 0 normal, 1 shadow, 2 local only, 3 allow all, 4 deny all.")
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
	hub, out.release = named(provider, hub)
	out.hub = attribute.NewSet(attrHub.String(hub))
	out.record = []metric.RecordOption{metric.WithAttributeSet(out.hub)}
	return out, nil
}

// register starts the observation of a hub. A reader may collect at once.
func (m *metrics) register(h *Hub) (err error) {
	if m.made == nil {
		return nil
	}
	m.reg, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		h.observe(o, &m.in)
		return nil
	}, m.made...)
	return err
}

// attributes returns the attributes of the series of a limiter, or of one of its classes.
func (l *Limiter) attributes() []attribute.KeyValue {
	of := []attribute.KeyValue{attrPolicy.String(l.cfg.Name)}
	if l.class.Name != "" {
		of = append(of, attrClass.String(l.class.Name))
	}
	return of
}

// observe reports all values of a hub and its limiters.
func (h *Hub) observe(o metric.Observer, in *instruments) {
	s, hub := h.Stats(), metric.WithAttributeSet(h.metrics.hub)
	o.ObserveInt64(in.messages, int64(s.Messages), hub)
	o.ObserveInt64(in.failures, int64(s.Failures), hub)
	o.ObserveInt64(in.gaps, int64(s.Gaps), hub)
	o.ObserveInt64(in.unapplied, int64(s.Refused), hub)
	o.ObserveInt64(in.breaker, int64(s.Breaker), hub)
	late := int64(0)
	if s.Behind {
		late = 1
	}
	o.ObserveInt64(in.late, late, hub)
	if h.concurrent() {
		member := int64(0)
		if h.permits.standing.Load().Live(h.clock.Now()) {
			member = 1
		}
		o.ObserveInt64(in.member, member, hub)
	}
	for _, l := range h.views() {
		own := l.attributes()
		of := func(kv ...attribute.KeyValue) metric.MeasurementOption {
			return metric.WithAttributes(append(kv, own...)...)
		}
		c := &l.count
		allowed, denied, admitted := c.tally() // h.Stats above has drained the budgets
		for i := range hybridlimit.NumSources {
			src := attrSource.String(hybridlimit.Source(i).String())
			may := l.mayDecide(hybridlimit.Source(i))
			if n := allowed[i]; n > 0 || may.allow {
				o.ObserveInt64(in.decisions, n, of(attrResult.String("allowed"), src))
			}
			if n := denied[i]; n > 0 || may.deny {
				o.ObserveInt64(in.decisions, n, of(attrResult.String("denied"), src))
			}
		}
		o.ObserveInt64(in.invalid, c.badLimits.Load(), of())
		o.ObserveInt64(in.ops, c.ops.Load(), of())
		o.ObserveInt64(in.fleet, l.fleet.Size(), of())
		o.ObserveInt64(in.switched, int64(l.inForce()), of())
		o.ObserveInt64(in.limited, int64(l.limits.source.Load()), of())
		if l.flight != nil {
			running, held, waiting := l.flight.sums()
			o.ObserveInt64(in.running, running, of())
			o.ObserveInt64(in.booked, held, of())
			o.ObserveInt64(in.waiting, waiting, of())
			o.ObserveInt64(in.keys, int64(l.flight.Len()), of())
			continue
		}
		o.ObserveInt64(in.units, admitted, of(attrFate.String("admitted")))
		o.ObserveInt64(in.units, c.acked.Load(), of(attrFate.String("paid")))
		o.ObserveInt64(in.units, c.debited.Load(), of(attrFate.String("granted")))
		o.ObserveInt64(in.units, c.expired.Load(), of(attrFate.String("expired")))
		o.ObserveInt64(in.units, c.lost.Load(), of(attrFate.String("lost")))
		o.ObserveInt64(in.units, c.uncertain.Load(), of(attrFate.String("uncertain")))
		o.ObserveInt64(in.units, c.dropped.Load(), of(attrFate.String("dropped")))
		o.ObserveInt64(in.units, c.forgiven.Load(), of(attrFate.String("forgiven")))
		o.ObserveInt64(in.units, c.returned.Load(), of(attrFate.String("returned")))
		o.ObserveInt64(in.units, c.refunded.Load(), of(attrFate.String("refunded")))
		o.ObserveInt64(in.evictions, int64(l.store.evicted.Load()), of())
		o.ObserveInt64(in.refusals, int64(l.store.refused.Load()), of())
		o.ObserveInt64(in.overflow, c.overflow.Load(), of())
		owed, held := l.books()
		o.ObserveInt64(in.owed, owed, of())
		o.ObserveInt64(in.held, held, of())
		o.ObserveInt64(in.resyncs, c.resynced.Load(), of())
		o.ObserveInt64(in.credit, l.creditNow(), of())
		o.ObserveInt64(in.keys, l.store.keys.Load(), of())
	}
}

// decides lists the results that a source can have.
type decides struct{ allow, deny bool }

// mayDecide returns the results that a source can have with this limiter. Their series are exported from the start
// with the value 0, so that the first decision is visible as a rise. These are at most ten series of a policy. The
// series of Unlimited is the exception: it begins with the first admission.
func (l *Limiter) mayDecide(s hybridlimit.Source) decides {
	exactly := l.exactly(l.plan.Load())
	if l.flight != nil && (s == hybridlimit.SourceLease || s == hybridlimit.SourceTimeout) {
		return decides{allow: s == hybridlimit.SourceLease, deny: s == hybridlimit.SourceTimeout}
	}
	switch s {
	case hybridlimit.SourceLease:
		return decides{allow: !exactly}
	case hybridlimit.SourceCredit:
		return decides{allow: !exactly && l.givesCredit()}
	case hybridlimit.SourceRedis, hybridlimit.SourceFallback, hybridlimit.SourceSwitch:
		return decides{true, true}
	case hybridlimit.SourceDenyCache:
		return decides{deny: l.cfg.Mode != ModeExact && l.flight == nil}
	case hybridlimit.SourceTimeout:
		return decides{deny: l.Mode() == ModeStrict}
	case hybridlimit.SourceStatic: // a cost above the burst
		return decides{deny: true}
	}
	return decides{}
}

func (m *metrics) close() error {
	defer m.release()
	if m.reg == nil {
		return nil
	}
	return m.reg.Unregister()
}
