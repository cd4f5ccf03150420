//go:build search

package e2e

import (
	"log/slog"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/otlptranslator"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// registered returns a provider of the SDK, and the registry in which Prometheus
// gathers its metrics.
func registered(t *testing.T) (*metric.MeterProvider, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		t.Fatal(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	t.Cleanup(func() { provider.Shutdown(t.Context()) })
	return provider, registry
}

// TestHubsByTheSDK checks that two limiters made by New in one process, one of
// them without its Redis, have separate series for breaker and messages in the
// SDK. They were once one series, which showed the hub that was observed last.
func TestHubsByTheSDK(t *testing.T) {
	provider, registry := registered(t)
	up := redistest.Client(t, redistest.Mini(t).Addr())
	for name, to := range map[string]string{"up": "", "down": "127.0.0.1:1"} {
		rdb := up
		if to != "" {
			rdb = redistest.Client(t, to)
		}
		l, err := hybrid.New(rdb, hybridlimit.PerSecond(5), hybrid.Config{
			Name: name, Mode: hybrid.ModeExact, MaxWait: 10 * time.Second, // so that a busy machine is slow but does not fail
			Hub: hybrid.HubConfig{
				MeterProvider: provider, Logger: slog.New(slog.DiscardHandler),
				SyncTimeout: 10 * time.Second, Breaker: breaker.Config{SlowCall: time.Minute},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		for range 50 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "rate_limiting_hub" {
					if values[f.GetName()] == nil {
						values[f.GetName()] = map[string]float64{}
					}
					values[f.GetName()][l.GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	for _, name := range []string{"rate_limiting_breaker_state", "rate_limiting_sync_failures_total"} {
		if v := values[name]; len(v) != 2 || v["hl/up"] != 0 || v["hl/down"] == 0 {
			t.Errorf("%s: %v, want 0 for hl/up and more for hl/down", name, v)
		}
	}
}

// TestAlertsCompareWithBounds checks that an alert compares a quantile with a
// bound of the histogram's buckets. A quantile between two bounds is an estimate.
func TestAlertsCompareWithBounds(t *testing.T) {
	provider, registry := registered(t)
	l, err := hybrid.New(redistest.Client(t, redistest.Mini(t).Addr()), hybridlimit.PerSecond(5), hybrid.Config{Name: "api", Mode: hybrid.ModeExact, Hub: hybrid.HubConfig{MeterProvider: provider}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if _, err := l.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	bounds := map[string][]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				bounds[f.GetName()] = append(bounds[f.GetName()], b.GetUpperBound())
			}
		}
	}
	compares := regexp.MustCompile(`(?s)histogram_quantile\(.*?\((rate_limiting_\w+)_bucket\[.*> ([\d.]+)$`)
	seen := 0
	for _, r := range rules(t, read(t, "../../../docs/grafana/alerts.yaml")) {
		m := compares.FindStringSubmatch(r.Expr)
		if m == nil {
			continue
		}
		seen++
		with, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, b := range bounds[m[1]] {
			found = found || b == with
		}
		if !found {
			t.Errorf("%s compares with %v, the bounds of %s are %v", r.Alert, with, m[1], bounds[m[1]])
		}
	}
	if seen == 0 {
		t.Error("no alert compares a quantile with a figure")
	}
}
