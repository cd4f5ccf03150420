package region_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/region"
)

// scopes separates the instruments of this package from those of the hub.
type scopes struct {
	noop.MeterProvider
	region *metertest.Provider
}

func (s scopes) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	if strings.HasSuffix(name, "/region") {
		return s.region.Meter(name, opts...)
	}
	return s.MeterProvider.Meter(name, opts...)
}

// TestMetrics compares the exported values with Stats.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := redistest.NewBubble(t), redistest.NewBubble(t)
		m := &metertest.Provider{}
		hub, err := hybrid.NewHub(a.Client(many), hybrid.HubConfig{Logger: quiet, MeterProvider: scopes{region: m}})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		l, err := region.New(hybridlimit.PerSecond(100), region.Config{
			Name: "api", Here: "a", Hub: hub, Others: map[string]redis.UniversalClient{"b": b.Client(many)},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second)
		for range 300 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		s, got := l.Stats(), m.Collect(t)
		for name, want := range map[string]int64{
			"rate_limiting.region.asks{rate_limiting.policy=api}":                                s.Asks,
			"rate_limiting.region.failures{rate_limiting.policy=api}":                            s.Failed,
			"rate_limiting.region.missed{rate_limiting.policy=api}":                              s.Missed,
			"rate_limiting.region.keys{rate_limiting.policy=api}":                                int64(s.Keys),
			"rate_limiting.region.units{rate_limiting.policy=api,rate_limiting.unit.fate=moved}": s.Moved,
			"rate_limiting.region.units{rate_limiting.policy=api,rate_limiting.unit.fate=late}":  s.Late,
			"rate_limiting.region.units{rate_limiting.policy=api,rate_limiting.unit.fate=lost}":  s.Lost,
		} {
			if v, ok := got[name]; !ok || int64(v) != want {
				t.Errorf("%s: %v, want %d", name, v, want)
			}
		}
		if s.Moved == 0 || s.Asks == 0 || s.Keys != 1 {
			t.Errorf("%+v", s)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if m.Registered() || m.Removed != 1 {
			t.Error("metrics are exported after Close")
		}
	})
}

// TestInstrumentsAreDocumented compares the metrics with docs/metrics.md.
func TestInstrumentsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Of regions\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]string{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), "`", ""), " | "); strings.HasPrefix(line, "| `rate_limiting") && len(cells) == 4 {
			rows[strings.TrimPrefix(cells[0], "| ")] = strings.Replace(cells[1], ", ", " | ", 1) + " | " + cells[2]
		}
	}
	m := &metertest.Provider{}
	hub, err := hybrid.NewHub(redistest.Client(t, "127.0.0.1:1"), hybrid.HubConfig{Logger: quiet, MeterProvider: scopes{region: m}})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	l, err := region.New(hybridlimit.PerSecond(100), region.Config{
		Name: "api", Here: "a", Hub: hub, Others: map[string]redis.UniversalClient{"b": redistest.Client(t, "127.0.0.1:2")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if made := m.Described(); !maps.Equal(rows, made) {
		t.Errorf("rows %q\nand instruments %q", slices.Sorted(maps.Values(rows)), slices.Sorted(maps.Values(made)))
	}
}
