package limitfile

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// scope is the instrumentation scope of OpenTelemetry.
const scope = "github.com/hybridlimit/hybridlimit/limitfile"

// attrFile is the path of the file.
const attrFile = attribute.Key("rate_limiting.config.file")

// measure starts the metrics, and returns the function that ends them.
func (s *Set) measure(provider metric.MeterProvider) (end func() error, err error) {
	if provider == nil {
		return func() error { return nil }, nil
	}
	m := provider.Meter(scope)
	age, err1 := m.Float64ObservableGauge("rate_limiting.config.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the file was last read and found to be the one in force; it grows while the file is missing or invalid."))
	failures, err2 := m.Int64ObservableCounter("rate_limiting.config.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Reads of the file that failed, or found invalid settings."))
	var reg metric.Registration
	err = cmp.Or(err1, err2)
	if err == nil {
		of := metric.WithAttributeSet(attribute.NewSet(attrFile.String(s.path)))
		reg, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			s.mu.Lock()
			good, errs := s.good, s.errs
			s.mu.Unlock()
			o.ObserveFloat64(age, time.Since(good).Seconds(), of)
			o.ObserveInt64(failures, errs, of)
			return nil
		}, age, failures)
	}
	if err != nil {
		return nil, fmt.Errorf("limitfile: Config.MeterProvider: %w", err)
	}
	return reg.Unregister, nil
}
