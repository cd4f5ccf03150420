//go:build search

package e2e

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/limitfile"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/otellimit"
)

// family is a metric as Prometheus receives it: its kind, and the values of its
// labels.
type family struct {
	kind   string
	labels map[string][]string
}

// exported returns the metrics that a program with all limiters exports, through
// the usual SDK and exporter.
func exported(t *testing.T) map[string]family {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		t.Fatal(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	t.Cleanup(func() { provider.Shutdown(t.Context()) })
	rdb := redistest.Client(t, redistest.Mini(t).Addr())
	h, err := hybrid.NewHub(rdb, hybrid.HubConfig{MeterProvider: provider, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	api, err := h.Limiter(hybridlimit.PerSecond(100), hybrid.Config{Name: "api"})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := otellimit.NewRecorder(otellimit.Config{MeterProvider: provider, Durations: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { recorder.Close() })
	memory, err := local.New(hybridlimit.PerSecond(1), local.Config{Name: "memory"})
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := recorder.Wrap("memory", memory)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "limits.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	limits, err := limitfile.Watch(path, h, limitfile.Config{MeterProvider: provider, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limits.Close() })
	calls, err := h.Concurrency(hybridlimit.Concurrent(5), hybrid.ConcurrencyConfig{Name: "calls"})
	if err != nil {
		t.Fatal(err)
	}
	permit, _, err := calls.Acquire(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(permit.Release)
	found := map[string]family{}
	redistest.Eventually(t, 20*time.Second, "a key has been synced twice", func() bool {
		for _, l := range []hybridlimit.Limiter{api, wrapped} {
			if _, err := l.AllowN(t.Context(), "alice", 1); err != nil {
				t.Error(err)
			}
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "rate_limiting") {
				continue
			}
			seen := found[f.GetName()]
			if seen.labels == nil {
				seen = family{strings.ToLower(f.GetType().String()), map[string][]string{}}
			}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if !slices.Contains(seen.labels[l.GetName()], l.GetValue()) {
						seen.labels[l.GetName()] = append(seen.labels[l.GetName()], l.GetValue())
					}
				}
			}
			found[f.GetName()] = seen
		}
		_, ok := found["rate_limiting_staleness_seconds"]
		return ok
	})
	return found
}

// query is one expression of a file.
type query struct{ where, text string }

// dashboard returns the queries of a Grafana dashboard.
func dashboard(text []byte) (found []query, err error) {
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			found = append(found, query{p.Title, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query)
		if m == nil {
			return nil, fmt.Errorf("variable %s asks %q", v.Name, v.Query)
		}
		found = append(found, query{"variable " + v.Name, "count by (" + m[2] + ") (" + m[1] + ")"})
	}
	return found, nil
}

// ambient are the labels that Prometheus or the exporter adds.
var ambient = []string{"job", "instance", "le"}

// closedSets returns the labels with a known set of values. Any other value is a
// misspelling.
func closedSets(found map[string]family) map[string][]string {
	sets := map[string][]string{
		"rate_limiting_result":    {"allowed", "denied"},
		"rate_limiting_unit_fate": found["rate_limiting_units_total"].labels["rate_limiting_unit_fate"], // all are exported, also those with value 0
	}
	for i := range adapter.NumSources {
		sets["rate_limiting_source"] = append(sets["rate_limiting_source"], hybridlimit.Source(i).String())
	}
	return sets
}

// checkQuery returns the errors of a query, and adds its metrics to used.
func checkQuery(q query, found map[string]family, used map[string]bool) (bad []string) {
	complain := func(format string, args ...any) { bad = append(bad, q.where+": "+fmt.Sprintf(format, args...)) }
	expr, err := parser.ParseExpr(q.text)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", q.where, err)}
	}
	sets, known := closedSets(found), slices.Clone(ambient)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name, part := v.Name, ""
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && found[base].kind == "histogram" {
				name, part = base, suffix
			}
		}
		f, ok := found[name]
		if !ok || f.kind == "histogram" && part == "" {
			complain("%s is not exported", v.Name)
			return nil
		}
		used[name] = true
		known = append(known, slices.Collect(maps.Keys(f.labels))...)
		for _, m := range v.LabelMatchers {
			if m.Name == model.MetricNameLabel {
				continue
			}
			if _, ok := f.labels[m.Name]; !ok && !slices.Contains(ambient, m.Name) {
				complain("%s has no label %s", name, m.Name)
			}
			values := []string{m.Value}
			if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
				values = strings.Split(m.Value, "|")
			}
			for _, value := range values {
				if set, ok := sets[m.Name]; ok && !slices.Contains(set, value) {
					complain("%s is never %q", m.Name, value)
				}
			}
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !slices.Contains(known, l) {
					complain("groups by %s, which nothing in it has", l)
				}
			}
		}
		return nil
	})
	return bad
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestDashboardAndAlerts checks with Prometheus's own parser that the dashboard
// and the alerts query exported metrics, that the dashboard shows all of them,
// and that each alert has a heading in docs/operations.md.
func TestDashboardAndAlerts(t *testing.T) {
	found := exported(t)
	queries, err := dashboard(read(t, "../../../docs/grafana/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, q := range queries {
		for _, line := range checkQuery(q, found, shown) {
			t.Errorf("dashboard.json: %s", line)
		}
	}
	for name := range found {
		if !shown[name] {
			t.Errorf("dashboard.json does not show %s", name)
		}
	}
	headings := anchors(string(read(t, "../../../docs/operations.md")))
	alerts := 0
	for _, r := range rules(t, read(t, "../../../docs/grafana/alerts.yaml")) {
		alerts++
		for _, line := range checkQuery(query{r.Alert, r.Expr}, found, map[string]bool{}) {
			t.Errorf("alerts.yaml: %s", line)
		}
		if anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], "{{ $externalLabels.runbooks }}operations.md#"); !ok || !slices.Contains(headings, anchor) {
			t.Errorf("alerts.yaml: %s: runbook_url %q; docs/operations.md has %q", r.Alert, r.Annotations["runbook_url"], headings)
		}
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
			t.Errorf("alerts.yaml: %s has no severity, or no summary", r.Alert)
		}
	}
	if alerts == 0 {
		t.Error("there are no alerts")
	}
}

func rules(t *testing.T, text []byte) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// anchors returns the link targets of the headings of a page.
func anchors(text string) (found []string) {
	drop := regexp.MustCompile(`[^a-z0-9 _-]`)
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			found = append(found, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
		}
	}
	return found
}

func TestWrongQueriesAreReported(t *testing.T) {
	found := map[string]family{
		"rate_limiting_decisions_total": {"counter", map[string][]string{"rate_limiting_policy": {"api"}, "rate_limiting_source": {"lease"}}},
		"rate_limiting_overshoot":       {"histogram", map[string][]string{"rate_limiting_policy": {"api"}}},
	}
	for text, want := range map[string]string{
		`sum by (rate_limiting_source) (rate(rate_limiting_decisions_total[5m]))`:       "",
		`histogram_quantile(1, sum by (le) (rate(rate_limiting_overshoot_bucket[5m])))`: "",
		`rate_limiting_decisions_total{rate_limiting_policy=~"$policy",instance="a"}`:   "",
		`rate_limiting_decisions`:                                              "rate_limiting_decisions is not exported",
		`rate_limiting_overshoot`:                                              "rate_limiting_overshoot is not exported",
		`rate_limiting_decisions_total{policy="api"}`:                          "has no label policy",
		`rate_limiting_decisions_total{rate_limiting_source=~"lease|fallbak"}`: `rate_limiting_source is never "fallbak"`,
		`sum by (policy) (rate_limiting_decisions_total)`:                      "groups by policy",
		`sum by (rate_limiting_policy (rate_limiting_decisions_total)`:         "unexpected",
	} {
		bad := strings.Join(checkQuery(query{"q", text}, found, map[string]bool{}), "\n")
		if (want == "") != (bad == "") || !strings.Contains(bad, want) {
			t.Errorf("%s: %q, want %q", text, bad, want)
		}
	}
	if got := anchors("# Page\n## Redis does not answer\n## The fleet's size is wrong\n"); !slices.Equal(got, []string{"redis-does-not-answer", "the-fleets-size-is-wrong"}) {
		t.Errorf("anchors %q", got)
	}
}
