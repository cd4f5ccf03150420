package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit/internal/filepoll"
	"github.com/hybridlimit/hybridlimit/rls"
)

// The lines of the log about the configuration.
const (
	msgInForce  = "hybridlimit-rls: the rules of the configuration are in force"
	msgValid    = "hybridlimit-rls: the configuration is valid again"
	msgUnusable = "hybridlimit-rls: the configuration cannot be used; the rules before stay in force; correct the files"
	msgNoEffect = "hybridlimit-rls: a part of the configuration has no effect"
)

const (
	// firstTries is the number of looks at a configuration that keeps changing, at the start.
	firstTries = 20
	// maxLogged is the number of different errors that are logged until the configuration is valid again, and of
	// violations in a line.
	maxLogged = 20
)

// watcher keeps the rules of a service as those of the configuration files.
type watcher struct {
	path   string
	log    *slog.Logger
	poller filepoll.Poller[*rls.Rules]
	logged map[string]bool

	mu     sync.Mutex // guards the fields below
	good   time.Time  // of the last good look
	failed bool       // the last look
	errs   int64
}

// newWatcher puts the rules of the configuration in force. It fails if they cannot be used.
func newWatcher(ctx context.Context, s Settings, service *rls.Service, log *slog.Logger) (*watcher, error) {
	w := &watcher{path: s.Config, log: log.With(slog.String("config", s.Config)), logged: map[string]bool{}}
	w.poller = filepoll.Poller[*rls.Rules]{
		Read:  func() ([]byte, error) { return readConfig(s.Config) },
		Parse: func(data []byte) (*rls.Rules, error) { return parseConfig(data, s.Merge) },
		Apply: func(rules *rls.Rules, hash [sha256.Size]byte) error {
			if err := service.SetRules(rules); err != nil {
				return err
			}
			w.log.Info(msgInForce,
				slog.Int("domains", len(rules.Domains())), slog.Int("rules", len(rules.Rules())),
				slog.String("sha256", fmt.Sprintf("%x", hash[:6])))
			for i, warning := range rules.Warnings() {
				if i == maxLogged {
					break
				}
				w.log.Warn(msgNoEffect, slog.String("place", warning.Error()))
			}
			return nil
		},
	}
	err := filepoll.ErrUnsettled
	for try := 0; try < firstTries && errors.Is(err, filepoll.ErrUnsettled); try++ {
		err = w.poller.Look(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("hybridlimit-rls: -config %s: %w", s.Config, err)
	}
	w.good = time.Now()
	return w, nil
}

// run looks at the files until ctx ends. Refused is called with each look that finds an invalid configuration.
func (w *watcher) run(ctx context.Context, every time.Duration, refused func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.poller.Wait(time.Second)
			return
		case <-tick.C:
		}
		err := w.poller.Look(ctx)
		if ctx.Err() != nil || errors.Is(err, filepoll.ErrUnsettled) {
			continue
		}
		if err != nil {
			refused()
		}
		w.note(err)
	}
}

// note keeps and logs the result of a look. A different error is one line.
func (w *watcher) note(err error) {
	w.mu.Lock()
	was := w.failed
	if w.failed = err != nil; err == nil {
		w.good = time.Now()
	} else {
		w.errs++
	}
	w.mu.Unlock()
	switch {
	case err == nil && was:
		clear(w.logged)
		w.log.Info(msgValid)
	case err != nil && !w.logged[err.Error()] && len(w.logged) < maxLogged:
		w.logged[err.Error()] = true
		for i, one := range violations(err) {
			if i == maxLogged {
				break
			}
			w.log.Warn(msgUnusable, slog.String("error", one.Error()))
		}
	}
}

// violations returns the parts of a joined error.
func violations(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// measure registers the metrics of the configuration. They are those of limitfile.
func (w *watcher) measure(provider metric.MeterProvider) error {
	m := provider.Meter("github.com/hybridlimit/hybridlimit/rls")
	age, err1 := m.Float64ObservableGauge("rate_limiting.config.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the configuration was last read and found to be the one in force."))
	failures, err2 := m.Int64ObservableCounter("rate_limiting.config.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Reads of the configuration that failed, or found invalid rules."))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	of := metric.WithAttributeSet(attribute.NewSet(attribute.String("rate_limiting.config.file", w.path)))
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		w.mu.Lock()
		good, errs := w.good, w.errs
		w.mu.Unlock()
		o.ObserveFloat64(age, time.Since(good).Seconds(), of)
		o.ObserveInt64(failures, errs, of)
		return nil
	}, age, failures)
	return err
}
