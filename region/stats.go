package region

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// counts has the counters of a limiter.
type counts struct {
	asks, failed, moved, late, lost atomic.Int64
}

// Stats counts the transfers of one process into its region. What this region gives to others is counted there.
type Stats struct {
	Keys   int   // keys that were denied lately
	Missed int64 // denials of further keys, for which no units come: at most 1000 keys are noted
	Asks   int64 // messages to other regions
	Failed int64 // messages without an answer; their units may be taken, and are lost
	Moved  int64 // units given to this region
	Late   int64 // units taken in other regions and dropped, because they came too late
	Lost   int64 // units given to this region of which its Redis may not know
}

// Stats returns the counts so far.
func (l *Limiter) Stats() Stats {
	c := &l.count
	return Stats{
		Keys: l.notes.size(), Missed: l.notes.missed.Load(), Asks: c.asks.Load(), Failed: c.failed.Load(),
		Moved: c.moved.Load(), Late: c.late.Load(), Lost: c.lost.Load(),
	}
}

// scope is the instrumentation scope of OpenTelemetry.
const scope = "github.com/hybridlimit/hybridlimit/region"

const (
	attrPolicy = attribute.Key("rate_limiting.policy")
	attrFate   = attribute.Key("rate_limiting.unit.fate")
)

// measure starts the metrics, and returns the function that ends them.
func (l *Limiter) measure(provider metric.MeterProvider) (end func() error, err error) {
	if provider == nil {
		return func() error { return nil }, nil
	}
	m := provider.Meter(scope)
	asks, err1 := m.Int64ObservableCounter("rate_limiting.region.asks", metric.WithUnit("{message}"),
		metric.WithDescription("Messages to other regions that ask for units."))
	failures, err2 := m.Int64ObservableCounter("rate_limiting.region.failures", metric.WithUnit("{message}"),
		metric.WithDescription("Messages to other regions without an answer; their units may be taken, and are lost."))
	units, err3 := m.Int64ObservableCounter("rate_limiting.region.units", metric.WithUnit("{unit}"),
		metric.WithDescription("Units of other regions by fate."))
	missed, err4 := m.Int64ObservableCounter("rate_limiting.region.missed", metric.WithUnit("{request}"),
		metric.WithDescription("Denials for which no units come, because more than 1000 keys are denied."))
	keys, err5 := m.Int64ObservableGauge("rate_limiting.region.keys", metric.WithUnit("{key}"),
		metric.WithDescription("Keys that were denied lately, for which units of other regions come."))
	err = cmp.Or(err1, err2, err3, err4, err5)
	var reg metric.Registration
	if err == nil {
		policy := attrPolicy.String(l.cfg.Name)
		of := metric.WithAttributeSet(attribute.NewSet(policy))
		fate := func(s string) metric.ObserveOption {
			return metric.WithAttributeSet(attribute.NewSet(policy, attrFate.String(s)))
		}
		moved, late, lost := fate("moved"), fate("late"), fate("lost")
		reg, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			s := l.Stats()
			o.ObserveInt64(asks, s.Asks, of)
			o.ObserveInt64(failures, s.Failed, of)
			o.ObserveInt64(units, s.Moved, moved)
			o.ObserveInt64(units, s.Late, late)
			o.ObserveInt64(units, s.Lost, lost)
			o.ObserveInt64(missed, s.Missed, of)
			o.ObserveInt64(keys, int64(s.Keys), of)
			return nil
		}, asks, failures, units, missed, keys)
	}
	if err != nil {
		return func() error { return nil }, fmt.Errorf("region: HubConfig.MeterProvider: %w", err)
	}
	return reg.Unregister, nil
}
