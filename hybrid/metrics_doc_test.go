package hybrid_test

import (
	"maps"
	"os"
	"regexp"
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

// metricRows parses the tables. The line "Attribute:" above a table has the attribute of all its instruments, and the
// sentences "... also has ..." have those of single ones.
func metricRows(t *testing.T, text string) map[string]documented {
	t.Helper()
	rows := map[string]documented{}
	for section := range strings.SplitSeq(text, "\n## ") {
		attribute := regexp.MustCompile("(?m)^Attribute: `([^`]+)`").FindStringSubmatch(section)
		more := map[string]string{}
		for _, m := range regexp.MustCompile("`([^`]+)` also has (`[^`]+`(?:, `[^`]+`)*)\\.(?:\\s|$)").FindAllStringSubmatch(section, -1) {
			more[m[1]] = ", " + strings.ReplaceAll(m[2], "`", "")
		}
		for line := range strings.Lines(section) {
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			if len(cells) != 4 || attribute == nil {
				t.Fatalf("%d cells in %q, want 4; attribute %q", len(cells), line, attribute)
			}
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			plain := func(i int) string { return strings.ReplaceAll(cells[i], "`", "") }
			if _, twice := rows[plain(0)]; twice {
				t.Errorf("%s has two rows", plain(0))
			}
			kind, unit, _ := strings.Cut(plain(1), ", ")
			rows[plain(0)] = documented{metertest.Instrument{Kind: kind, Unit: unit, Description: cells[2]}, attribute[1] + more[plain(0)], cells[3]}
			delete(more, plain(0))
		}
		for name := range more {
			t.Errorf("%s has attributes and no row", name)
		}
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
	rules, err := os.ReadFile("../docs/grafana/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range regexp.MustCompile("`(RateLimit\\w+)`").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(rules), "- alert: "+alert[1]+"\n") {
			t.Errorf("docs/metrics.md names %s, which docs/grafana/alerts.yaml does not have", alert[1])
		}
	}
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
	const table = "| instrument | kind, unit |\n|---|---|\n"
	rows := metricRows(t, "\n## One\n\nAttribute: `p`. `a.b` also has `q`, `r.s`. `a.c` also has `q`.\n\n"+table+"| `a.b` | gauge, `{x}` | What it is. | too many |\n"+
		"| `a.c` | counter, `s` | More. | – |\n\n## Two\n\nAttribute: `h`.\n\n"+table+"| `a.d` | counter, `s` | More. | – |\n")
	for name, want := range map[string]documented{
		"a.b": {metertest.Instrument{Kind: "gauge", Unit: "{x}", Description: "What it is."}, "p, q, r.s", "too many"},
		"a.c": {metertest.Instrument{Kind: "counter", Unit: "s", Description: "More."}, "p, q", "–"},
		"a.d": {metertest.Instrument{Kind: "counter", Unit: "s", Description: "More."}, "h", "–"},
	} {
		if got := rows[name]; len(rows) != 3 || got.Kind != want.Kind || got.Unit != want.Unit ||
			got.Description != want.Description || got.attributes != want.attributes || got.alert != want.alert {
			t.Errorf("rows %+v, %s: want %+v", rows, name, want)
		}
	}
	got := attributesOf("a{p=1,q=2}", "a{p=2,q=1}", "b{}", "c{p=1}", "c{q=1}")
	if want := map[string]string{"a": "p, q", "b": "none", "c": "varies"}; !maps.Equal(got, want) {
		t.Errorf("attributes %v, want %v", got, want)
	}
}
