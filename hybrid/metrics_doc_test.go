package hybrid_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// documented is a row of the table in docs/metrics.md.
type documented struct {
	metertest.Instrument
	attributes string
	alert      string
}

// metricRows parses the table.
func metricRows(t *testing.T, text string) map[string]documented {
	t.Helper()
	rows := map[string]documented{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 6 {
			t.Fatalf("%d cells in %q, want 6", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		plain := func(i int) string { return strings.ReplaceAll(cells[i], "`", "") }
		if _, twice := rows[plain(0)]; twice {
			t.Errorf("%s has two rows", plain(0))
		}
		rows[plain(0)] = documented{metertest.Instrument{Kind: plain(1), Unit: plain(2), Description: cells[4]}, plain(3), cells[5]}
	}
	return rows
}

// attributesOf returns the names of the attributes that each instrument was observed
// with, or "varies" if they differ.
func attributesOf(points ...string) map[string]string {
	out := map[string]string{}
	for _, at := range points {
		name, set, _ := strings.Cut(strings.TrimSuffix(at, "}"), "{")
		var keys []string
		for kv := range strings.SplitSeq(set, ",") {
			key, _, _ := strings.Cut(kv, "=")
			keys = append(keys, key)
		}
		got := strings.Join(keys, ", ")
		switch had, ok := out[name]; {
		case got == "":
			out[name] = "none"
		case ok && had != got:
			out[name] = "varies"
		default:
			out[name] = got
		}
	}
	return out
}

// TestMetricsAreDocumented checks that docs/metrics.md lists exactly the instruments of a
// hub, with their kinds, units, attributes and descriptions.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, ok := strings.Cut(string(text), "\n## Limiters without a hub\n") // whose table has its own test, in otellimit
	if !ok {
		t.Fatal("docs/metrics.md has no end of the table")
	}
	rows := metricRows(t, table)
	synctest.Test(t, func(t *testing.T) {
		b, m := redistest.NewBubble(t), &metertest.Provider{}
		h := newHub(t, b.Client(nil), hybrid.HubConfig{MeterProvider: m})
		l := add(t, h, still(5), hybrid.Config{Name: "api"})
		calls, err := h.Concurrency(hybridlimit.Concurrent(5), hybrid.ConcurrencyConfig{Name: "calls"})
		if err != nil {
			t.Fatal(err)
		}
		for range 6 { // also after a first answer
			ask(t, l, "k", 1)
			p, _ := acquire(t, calls, "k", 1)
			p.Release()
			time.Sleep(time.Second)
		}
		seen := slices.Collect(maps.Keys(m.Collect(t)))
		attributes := attributesOf(append(seen, m.Recorded()...)...)
		for name, in := range m.Made {
			row, ok := rows[name]
			if !ok {
				t.Errorf("%s has no row", name)
				continue
			}
			if row.Kind != in.Kind || row.Unit != in.Unit || row.Description != in.Description || in.Description == "" {
				t.Errorf("%s is\n%+v, its row says\n%+v", name, in, row.Instrument)
			}
			if row.attributes != attributes[name] {
				t.Errorf("%s was observed with %q, its row says %q", name, attributes[name], row.attributes)
			}
			if row.alert == "" {
				t.Errorf("%s: its row has nothing to alert on", name)
			}
		}
		for name := range rows {
			if _, ok := m.Made[name]; !ok {
				t.Errorf("%s has a row and is no instrument", name)
			}
		}
	})
}

func TestMetricRows(t *testing.T) {
	rows := metricRows(t, "| instrument | kind |\n|---|---|\n| `a.b` | gauge | `{x}` | `p`, `q` | What it is. | too many |\n")
	want := documented{metertest.Instrument{Kind: "gauge", Unit: "{x}", Description: "What it is."}, "p, q", "too many"}
	if got := rows["a.b"]; len(rows) != 1 || got.Kind != want.Kind || got.Unit != want.Unit ||
		got.Description != want.Description || got.attributes != want.attributes || got.alert != want.alert {
		t.Errorf("rows %+v, want %+v", rows, want)
	}
	got := attributesOf("a{p=1,q=2}", "a{p=2,q=1}", "b{}", "c{p=1}", "c{q=1}")
	if want := map[string]string{"a": "p, q", "b": "none", "c": "varies"}; !maps.Equal(got, want) {
		t.Errorf("attributes %v, want %v", got, want)
	}
}
