package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit/rls"
)

// The lines of the log about rules, from files or a control plane.
const (
	msgInForce  = "hybridlimit-rls: the rules of the configuration are in force"
	msgValid    = "hybridlimit-rls: the configuration is valid again"
	msgNoEffect = "hybridlimit-rls: a part of the configuration has no effect"
)

// maxLogged is the number of different errors that are logged until the configuration is valid again, and of violations in
// a line.
const maxLogged = 20

// source is what is known about the place that rules come from.
type source struct {
	name     string
	unusable string // the line of the log about an error
	log      *slog.Logger
	logged   map[string]bool

	mu        sync.Mutex // guards the fields below
	good      time.Time  // when the rules in force were last known to be those of the source
	failed    bool       // the last look or push
	connected bool       // to a control plane: what is not pushed has not changed
	errs      int64
}

func newSource(name, unusable string, log *slog.Logger) source {
	return source{name: name, unusable: unusable, log: log.With(slog.String("config", name)), logged: map[string]bool{}, good: time.Now()}
}

// inForce logs rules that were put in force.
func (s *source) inForce(rules *rls.Rules, more ...any) {
	s.log.Info(msgInForce, append([]any{slog.Int("domains", len(rules.Domains())), slog.Int("rules", len(rules.Rules()))}, more...)...)
	all := rules.Warnings()
	for _, warning := range all[:min(len(all), maxLogged)] {
		s.log.Warn(msgNoEffect, slog.String("place", warning.Error()))
	}
}

// note keeps and logs the result of a look. A different error is one line.
func (s *source) note(err error) {
	s.mu.Lock()
	was := s.failed
	if s.failed = err != nil; err == nil {
		s.good = time.Now()
	} else {
		s.errs++
	}
	s.mu.Unlock()
	switch {
	case err == nil && was:
		clear(s.logged)
		s.log.Info(msgValid)
	case err != nil && !s.logged[err.Error()] && len(s.logged) < maxLogged:
		s.logged[err.Error()] = true
		all := []error{err}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			all = joined.Unwrap()
		}
		for _, one := range all[:min(len(all), maxLogged)] {
			s.log.Warn(s.unusable, slog.String("error", one.Error()))
		}
	}
}

// measure registers the metrics of the configuration. They are those of limitfile.
func (s *source) measure(provider metric.MeterProvider) error {
	m := provider.Meter("github.com/hybridlimit/hybridlimit/rls")
	age, err1 := m.Float64ObservableGauge("rate_limiting.config.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the configuration was last read and found to be the one in force."))
	failures, err2 := m.Int64ObservableCounter("rate_limiting.config.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Reads of the configuration that failed, or found invalid rules."))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	of := metric.WithAttributeSet(attribute.NewSet(attribute.String("rate_limiting.config.file", s.name)))
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s.mu.Lock()
		good, errs, sure := s.good, s.errs, s.connected && !s.failed
		s.mu.Unlock()
		if sure {
			good = time.Now()
		}
		o.ObserveFloat64(age, time.Since(good).Seconds(), of)
		o.ObserveInt64(failures, errs, of)
		return nil
	}, age, failures)
	return err
}
