package shed

import (
	"cmp"
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
)

// scope is the instrumentation scope of OpenTelemetry.
const scope = "github.com/hybridlimit/hybridlimit/shed"

// Attribute keys, as in package hybrid.
const (
	attrPolicy = attribute.Key("rate_limiting.policy")
	attrResult = attribute.Key("rate_limiting.result")
	attrSource = attribute.Key("rate_limiting.source")
	attrClass  = attribute.Key("rate_limiting.class")
)

// metrics exports the state of a Shedder.
type metrics struct {
	s                        *Shedder
	decisions, noRoom        metric.Int64ObservableCounter
	limit, inFlight, waiting metric.Int64ObservableGauge
	share                    metric.Float64ObservableGauge
	reg                      metric.Registration
}

// newMetrics returns nil without a provider.
func newMetrics(provider metric.MeterProvider, s *Shedder) (*metrics, error) {
	if provider == nil {
		return nil, nil
	}
	m, x := provider.Meter(scope), &metrics{s: s}
	var errs [6]error
	x.decisions, errs[0] = m.Int64ObservableCounter("rate_limiting.decisions", metric.WithUnit("{request}"),
		metric.WithDescription("Decisions by policy, class, result and source."))
	x.noRoom, errs[1] = m.Int64ObservableCounter("rate_limiting.shed.no_room", metric.WithUnit("{request}"),
		metric.WithDescription("Calls that were shed because no place was free within MaxWait."))
	x.limit, errs[2] = m.Int64ObservableGauge("rate_limiting.shed.limit", metric.WithUnit("{request}"),
		metric.WithDescription("Calls that may run at once before calls wait."))
	x.inFlight, errs[3] = m.Int64ObservableGauge("rate_limiting.shed.in_flight", metric.WithUnit("{request}"),
		metric.WithDescription("Calls that run, of all classes."))
	x.waiting, errs[4] = m.Int64ObservableGauge("rate_limiting.shed.waiting", metric.WithUnit("{request}"),
		metric.WithDescription("Calls that wait for a place."))
	x.share, errs[5] = m.Float64ObservableGauge("rate_limiting.shed.share", metric.WithUnit("1"),
		metric.WithDescription("Part of the calls below the first class that is shed at once."))
	err := cmp.Or(errs[:]...)
	if err == nil {
		x.reg, err = m.RegisterCallback(x.observe, x.decisions, x.noRoom, x.limit, x.inFlight, x.waiting, x.share)
	}
	if err != nil {
		return nil, fmt.Errorf("shed: Config.MeterProvider: %w", err)
	}
	return x, nil
}

// observe reports the state at each collection.
func (x *metrics) observe(_ context.Context, o metric.Observer) error {
	now := x.s.Stats()
	policy := attrPolicy.String(x.s.cfg.Name)
	source := attrSource.String(hybridlimit.SourceShed.String())
	for _, c := range now.Classes {
		class := attrClass.String(c.Class)
		o.ObserveInt64(x.decisions, c.Allowed, metric.WithAttributes(policy, class, attrResult.String("allowed"), source))
		o.ObserveInt64(x.decisions, c.Shed, metric.WithAttributes(policy, class, attrResult.String("denied"), source))
		o.ObserveInt64(x.noRoom, c.NoRoom, metric.WithAttributes(policy, class))
	}
	of := metric.WithAttributes(policy)
	o.ObserveInt64(x.limit, int64(now.Limit), of)
	o.ObserveInt64(x.inFlight, int64(now.InFlight), of)
	o.ObserveInt64(x.waiting, int64(now.Waiting), of)
	o.ObserveFloat64(x.share, now.Share, of)
	return nil
}

// close ends the export.
func (x *metrics) close() error {
	if x == nil {
		return nil
	}
	return x.reg.Unregister()
}

// Stats is the state of a Shedder.
type Stats struct {
	Share    float64      // part of the calls below the first class that is shed at once, 0 to 1
	Limit    int          // calls that may run at once before calls wait
	InFlight int          // calls that run, of all classes
	Waiting  int          // calls that wait for a place
	Classes  []ClassStats // in the order of Config.Classes
}

// ClassStats counts the calls of one class since New.
type ClassStats struct {
	Class   string
	Allowed int64
	Shed    int64 // calls that were shed, for either reason
	NoRoom  int64 // of these: calls that waited MaxWait without a place
}

// Stats returns the state now.
func (s *Shedder) Stats() Stats {
	all := Stats{
		Share:    *s.cut.share.Load(),
		Limit:    s.limiter.Limit(),
		InFlight: int(s.running.Load()),
		Waiting:  s.room.queued(),
	}
	for _, c := range s.classes {
		all.Classes = append(all.Classes, ClassStats{
			Class:   c.name,
			Allowed: c.allowed.Load(),
			NoRoom:  c.noRoom.Load(), // before Shed, which is never below
			Shed:    c.shed.Load(),
		})
	}
	return all
}
