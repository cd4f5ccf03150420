package otellimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
)

// scope is the instrumentation scope of OpenTelemetry.
const scope = "github.com/hybridlimit/hybridlimit/otellimit"

// Attribute keys, as in package hybrid.
const (
	attrPolicy = attribute.Key("rate_limiting.policy")
	attrResult = attribute.Key("rate_limiting.result")
	attrSource = attribute.Key("rate_limiting.source")
)

// durationBounds are in seconds. They range from a decision in memory to one that waits for Redis.
var durationBounds = []float64{1e-7, 2.5e-7, 5e-7, 1e-6, 1e-5, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1}

// Config configures a Recorder. The zero Config records nothing.
type Config struct {
	// MeterProvider receives the metrics. Nil: no metrics, at no cost.
	MeterProvider metric.MeterProvider
	// Durations records the duration of each decision. It is meant for limiters that ask Redis. Cost per decision: two
	// readings of the clock, and the provider's histogram. Zero: durations are not recorded.
	Durations bool
}

// Recorder counts the decisions of the limiters that it wraps. It is safe for concurrent use and starts no goroutines.
type Recorder struct {
	decisions, failures, evictions metric.Int64ObservableCounter
	keys, running                  metric.Int64ObservableGauge
	duration                       metric.Float64Histogram // nil: durations are not recorded
	on                             bool
	reg                            metric.Registration

	mu      sync.Mutex // guards closed and wrapped
	closed  bool
	wrapped map[string]*counted
}

// NewRecorder returns a Recorder. It fails if the provider does.
func NewRecorder(cfg Config) (*Recorder, error) {
	r := &Recorder{wrapped: map[string]*counted{}, on: cfg.MeterProvider != nil}
	if !r.on {
		return r, nil
	}
	m := cfg.MeterProvider.Meter(scope)
	var errs [6]error
	r.decisions, errs[0] = m.Int64ObservableCounter("rate_limiting.decisions", metric.WithUnit("{request}"),
		metric.WithDescription("Decisions by policy, result and source."))
	r.failures, errs[1] = m.Int64ObservableCounter("rate_limiting.errors", metric.WithUnit("{request}"),
		metric.WithDescription("Calls that were not decided, or only by the fallback: invalid input, an ended context, Redis unavailable."))
	r.keys, errs[2] = m.Int64ObservableGauge("rate_limiting.keys", metric.WithUnit("{key}"),
		metric.WithDescription("Keys in memory."))
	r.evictions, errs[3] = m.Int64ObservableCounter("rate_limiting.evictions", metric.WithUnit("{key}"),
		metric.WithDescription("Keys forgotten to make room for others."))
	r.running, errs[5] = m.Int64ObservableGauge("rate_limiting.permits.running", metric.WithUnit("{permit}"),
		metric.WithDescription("Permits that running calls of the process use."))
	made := []metric.Observable{r.decisions, r.failures, r.keys, r.evictions, r.running}
	if cfg.Durations {
		r.duration, errs[4] = m.Float64Histogram("rate_limiting.decision.duration", metric.WithUnit("s"),
			metric.WithDescription("Time to decide a call."), metric.WithExplicitBucketBoundaries(durationBounds...))
	}
	err := cmp.Or(errs[0], errs[1], errs[2], errs[3], errs[4], errs[5])
	if err == nil {
		r.reg, err = m.RegisterCallback(r.observe, made...)
	}
	if err != nil {
		return nil, fmt.Errorf("otellimit: Config.MeterProvider: %w", err)
	}
	return r, nil
}

// Wrap returns a limiter that decides as next does, and counts its decisions under a name. The name has 1 to 128 of the
// characters A-Z a-z 0-9 _ . - and must be unique in the Recorder. The result is a adapter.Joint, a
// adapter.Describer and a hybridlimit.Acquirer if next is. Call other methods on next itself; they are not counted.
// For an Acquirer, the permits of running calls are counted too, at the cost of one allocation a call. Without a
// provider, Wrap returns next.
func (r *Recorder) Wrap(name string, next hybridlimit.Limiter) (hybridlimit.Limiter, error) {
	var bad adapter.Violations
	bad.AddIf(!adapter.CheckName(name), "name", name, "must match [A-Za-z0-9_.-]{1,128}")
	bad.AddIf(next == nil, "next", next, "is required")
	r.mu.Lock()
	defer r.mu.Unlock()
	bad.AddIf(r.wrapped[name] != nil, "name", name, "is taken by another limiter of this Recorder")
	if err := bad.Err("otellimit"); err != nil {
		return nil, err
	}
	if r.closed {
		return nil, fmt.Errorf("otellimit: %w", hybridlimit.ErrClosed)
	}
	c := newCounted(name, next, r.duration)
	r.wrapped[name] = c
	if !r.on {
		return next, nil
	}
	return c.dressed(), nil
}

// Close ends the export. It does not close the limiters, which continue to work. Close is idempotent.
func (r *Recorder) Close() error {
	r.mu.Lock()
	was := r.closed
	r.closed = true
	r.mu.Unlock()
	if was || r.reg == nil {
		return nil
	}
	return r.reg.Unregister()
}

// observe reports the counters at each collection.
func (r *Recorder) observe(_ context.Context, o metric.Observer) error {
	r.mu.Lock()
	all := make([]*counted, 0, len(r.wrapped))
	for _, c := range r.wrapped {
		all = append(all, c)
	}
	r.mu.Unlock()
	for _, c := range all {
		policy := attrPolicy.String(c.name)
		for i := range adapter.NumSources {
			allowed, denied := c.allowed[i].Load(), c.denied[i].Load()
			if allowed+denied == 0 {
				continue
			}
			// Both are exported from the first decision on, so that the first denial is a rise from 0.
			source := attrSource.String(hybridlimit.Source(i).String())
			o.ObserveInt64(r.decisions, allowed, metric.WithAttributes(policy, attrResult.String("allowed"), source))
			o.ObserveInt64(r.decisions, denied, metric.WithAttributes(policy, attrResult.String("denied"), source))
		}
		o.ObserveInt64(r.failures, c.failed.Load(), metric.WithAttributes(policy))
		if _, ok := c.next.(hybridlimit.Acquirer); ok {
			o.ObserveInt64(r.running, c.running.Load(), metric.WithAttributes(policy))
		}
		if l, ok := c.next.(interface{ Len() int }); ok {
			o.ObserveInt64(r.keys, int64(l.Len()), metric.WithAttributes(policy))
		}
		if l, ok := c.next.(interface{ Evicted() uint64 }); ok {
			o.ObserveInt64(r.evictions, int64(l.Evicted()), metric.WithAttributes(policy))
		}
	}
	return nil
}

// decided reports whether a Result has a decision. Beside ErrUnavailable it is the fallback's.
func decided(err error) bool { return err == nil || errors.Is(err, hybridlimit.ErrUnavailable) }
