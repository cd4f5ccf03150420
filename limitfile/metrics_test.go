package limitfile

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// meters is a MeterProvider that keeps its instruments. The SDK is not a dependency of
// this module.
type meters struct {
	noop.MeterProvider
	made     map[string]string // name: "kind | unit | description"
	callback metric.Callback
	failAt   string
}

type meter struct {
	noop.Meter
	m *meters
}

type (
	counter struct {
		noop.Int64ObservableCounter
		name string
	}
	gauge struct {
		noop.Float64ObservableGauge
		name string
	}
	registration struct {
		noop.Registration
		m *meters
	}
	observer struct {
		noop.Observer
		seen map[string]float64 // by "name{attributes}"
	}
)

var errNoMore = errors.New("no more instruments")

func newMeters() *meters { return &meters{made: map[string]string{}} }

func (m *meters) note(name, kind, unit, description string) error {
	m.made[name] = strings.Join([]string{kind, unit, description}, " | ")
	if name == m.failAt {
		return errNoMore
	}
	return nil
}

func (m *meters) Meter(string, ...metric.MeterOption) metric.Meter { return meter{m: m} }

func (m meter) Int64ObservableCounter(name string, opts ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	c := metric.NewInt64ObservableCounterConfig(opts...)
	return counter{name: name}, m.m.note(name, "counter", c.Unit(), c.Description())
}

func (m meter) Float64ObservableGauge(name string, opts ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	c := metric.NewFloat64ObservableGaugeConfig(opts...)
	return gauge{name: name}, m.m.note(name, "gauge", c.Unit(), c.Description())
}

func (m meter) RegisterCallback(f metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	m.m.callback = f
	return registration{m: m.m}, nil
}

func (r registration) Unregister() error { r.m.callback = nil; return nil }

func (o observer) ObserveInt64(in metric.Int64Observable, v int64, opts ...metric.ObserveOption) {
	o.note(in.(counter).name, float64(v), opts)
}

func (o observer) ObserveFloat64(in metric.Float64Observable, v float64, opts ...metric.ObserveOption) {
	o.note(in.(gauge).name, v, opts)
}

func (o observer) note(name string, v float64, opts []metric.ObserveOption) {
	set := metric.NewObserveConfig(opts).Attributes()
	for _, kv := range set.ToSlice() {
		name += "{" + string(kv.Key) + "=" + kv.Value.AsString() + "}"
	}
	o.seen[name] = v
}

func (m *meters) collect(t *testing.T) map[string]float64 {
	t.Helper()
	o := observer{seen: map[string]float64{}}
	must(t, m.callback(context.Background(), o))
	return o.seen
}

// The age is small while the file is read well, also if it never changes. It grows,
// and the errors are counted, from the first read that fails.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, hub := newMeters(), &fakeHub{}
		path := t.TempDir() + "/limits.json"
		write(t, path, limits("100"))
		s, err := Watch(path, hub, Config{MeterProvider: m})
		must(t, err)
		defer s.Close()
		at := func(age, errs float64) {
			t.Helper()
			want := map[string]float64{
				"rate_limiting.config.age{rate_limiting.config.file=" + path + "}":    age,
				"rate_limiting.config.errors{rate_limiting.config.file=" + path + "}": errs,
			}
			if got := m.collect(t); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		at(0, 0)
		time.Sleep(time.Second)
		at(1, 0)
		time.Sleep(1000*defaultEvery - settle) // half a second after a read, whatever the time
		at(0.9, 0)
		write(t, path, "[]")
		time.Sleep(10 * defaultEvery)
		at(20.9, 10)
		write(t, path, limits("100"))
		time.Sleep(defaultEvery)
		at(0.9, 10)
		must(t, os.Remove(path))
		time.Sleep(defaultEvery)
		at(2.9, 11)
		must(t, s.Close())
		if m.callback != nil {
			t.Error("Close has not ended the metrics")
		}
	})
}

func TestMetricsThatFail(t *testing.T) {
	for _, at := range []string{"rate_limiting.config.age", "rate_limiting.config.errors"} {
		bubble(t, func(t *testing.T) {
			m, hub := newMeters(), &fakeHub{}
			m.failAt = at
			path := t.TempDir() + "/limits.json"
			write(t, path, limits("100"))
			s, err := Watch(path, hub, Config{MeterProvider: m})
			if s != nil || !errors.Is(err, errNoMore) || !strings.HasPrefix(err.Error(), "limitfile: Config.MeterProvider: ") || hub.calls != 0 {
				t.Errorf("%s: %v, %v, %d calls", at, s, err, hub.calls)
			}
		})
	}
}

// docs/metrics.md lists exactly these instruments, and the code has their meaning.
func TestInstrumentsOfAFileAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	must(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Limits from a file\n")
	if section, _, _ = strings.Cut(section, "\n## "); !ok {
		t.Fatal("no section")
	}
	rows := map[string]string{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), "`", ""), " | "); strings.HasPrefix(line, "| `rate_limiting") && len(cells) == 6 {
			rows[strings.TrimPrefix(cells[0], "| ")] = strings.Join([]string{cells[1], cells[2], cells[4]}, " | ")
			if cells[3] != string(attrFile) {
				t.Errorf("%s has the attributes %q", cells[0], cells[3])
			}
		}
	}
	m := newMeters()
	bubble(t, func(t *testing.T) {
		path := t.TempDir() + "/limits.json"
		write(t, path, "{}")
		s, err := Watch(path, &fakeHub{}, Config{MeterProvider: m})
		must(t, err)
		must(t, s.Close())
	})
	if !maps.Equal(rows, m.made) {
		t.Errorf("rows %q\nand instruments %q", slices.Sorted(maps.Values(rows)), slices.Sorted(maps.Values(m.made)))
	}
}
