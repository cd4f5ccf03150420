package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	protocol "github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

func TestMain(m *testing.M) {
	isMember()
	hush()
	os.Exit(m.Run())
}

// tiny is the whole measurement at a size that only shows that it runs.
var tiny = scale{
	rounds: 2, costOps: 128, lasts: 20 * time.Millisecond, timing: 500, paced: 2000,
	idleKeys: 500, settle: 100 * time.Millisecond, beats: time.Second,
	churnKeys: 2048, churnEach: 500, churnOnRedis: 200,
	survivalKeys: 1000, survivalCalls: 400,
	fleetRounds: 2, hot: hotSize{2, 2, 200 * time.Millisecond, 200 * time.Millisecond, 2},
	fleets: []fleetSize{
		{name: "few calls", kinds: kindsOf("hybrid", "global", "redis_rate"), limit: hybridlimit.PerMinute(100), members: 2, keys: 300, perSecond: 300, lasts: 200 * time.Millisecond, settle: 100 * time.Millisecond},
		{name: "two limits", kinds: modeKinds, limit: hybridlimit.PerSecond(100), zipf: true, two: true, members: 2, keys: 300, perSecond: 300, lasts: 200 * time.Millisecond, settle: 100 * time.Millisecond},
	},
}

func testServer(t *testing.T) *benchkit.Redis {
	t.Helper()
	redistest.Need(t)
	srv, err := benchkit.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	return srv
}

// TestMeasurement checks the facts that depend neither on the length of the
// measurement nor on the load of the machine: traffic and stored keys.
func TestMeasurement(t *testing.T) {
	r := &results{scale: tiny}
	parts := make([]*results, len(sections))
	ctx := context.Background()
	t.Run("sections", func(t *testing.T) { // in parallel, each with its own Redis
		for i, section := range sections {
			t.Run(section.name, func(t *testing.T) {
				t.Parallel()
				srv := testServer(t)
				if i == 0 {
					var err error
					if r.machine, err = thisMachine(ctx, srv); err != nil {
						t.Fatal(err)
					}
				}
				parts[i] = &results{scale: tiny}
				if err := section.measure(parts[i], ctx, srv); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
	if t.Failed() || t.Skipped() || parts[0] == nil {
		t.SkipNow() // reported above
	}
	for _, part := range parts {
		r.Rows = append(r.Rows, part.Rows...)
	}
	for _, row := range r.Rows {
		want := tiny.rounds
		if row.Table == "timed" {
			want = 1
		}
		if len(row.Rounds) != want {
			t.Errorf("%s, %s, %s: %d rounds", row.Table, row.Load, row.Name, len(row.Rounds))
		}
		for _, f := range row.Rounds {
			check(t, r, row, f)
		}
	}
	all := rowsOf(tiny, func(_, _, _ string) benchkit.Figures { return nil })
	for _, table := range []string{"op", "beat", "decision", "timed", "single", "storm", "fleet", "hot", "idle", "churn", "survival"} {
		if got, want := len(r.Of(table)), len(all.Of(table)); got != want {
			t.Errorf("%d rows of %s, want %d", got, table, want)
		}
	}
	for _, load := range tiny.fleets { // all fleets get the same calls
		first := r.Row("fleet", load.name, load.kinds[0].name)
		for _, k := range load.kinds {
			for i, f := range r.Row("fleet", load.name, k.name).Rounds {
				if f["calls"] < 1 || f["calls"] != first.Rounds[i]["calls"] {
					t.Errorf("%s, %s, round %d: %v calls, and %s has %v", load.name, k.name, i, f["calls"], first.Name, first.Rounds[i]["calls"])
				}
			}
		}
	}
	batch := r.Row("op", "", strconv.Itoa(protocol.MaxOps)).Rounds[0]
	if batch["sent"] >= batch["alone sent"] || batch["received"] >= batch["alone received"] {
		t.Errorf("an op in a batch and alone: %+v", batch)
	}
	page := r.page()
	for _, want := range []string{"# The cost for Redis", "## A synced op", "## A decision", "## Services", "## A hot key", "`SCRIPT FLUSH`", "## Idle", "## Heartbeats", "## Many keys\n", "| **64** |", "go-zero TokenLimiter"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
		t.Errorf("the page has NaN or Inf:\n%s", page)
	}
	if got := len(r.musts()); got != 22 {
		t.Errorf("%d required figures, want 22", got)
	}
}

// check checks a round of a row.
func check(t *testing.T, r *results, row *benchkit.Row, f benchkit.Figures) {
	t.Helper()
	good := true
	switch row.Table {
	case "op":
		for _, shape := range []string{"", "alone "} {
			sent, received := f[shape+"sent"], f[shape+"received"]
			good = good && f[shape+"cpu"] >= 0 && f[shape+"script"] > 0 && sent >= 50 && sent <= 400 && received >= 50 && received <= 200
		}
	case "decision":
		good = f["perSecond"] > 0 && (row.Name == "hybrid" || f["sent"] > 0) // hybrid may send nothing in such a short time
	case "timed":
		good = f["p50"] > 0 && f["p99"] >= f["p50"]
	case "single":
		good = f["p50"] > 0 && f["p99"] >= f["p50"] && f["perSecond"] > 0 && f["perSecond"] <= 1e9/f["p50"]*2 && f["mallocs"] >= 1
	case "storm":
		// At least one call sends the script, and each sends its key.
		good = f["fails"] > 0 || f["messages"] > 0 && f["sent"]*callers >= 500 && f["slowest"] > 0
	case "fleet":
		least := 1.0
		if row.Load == "two limits" {
			least = 2
		}
		good = f["process"] > 0 && f["p50"] > 0 && f["p99"] >= f["p50"] && f["denied"] <= 0 && f["fails"] <= 1 && f["astray"]-f["fails"] <= 1
		if row.Name == "redis_rate" { // every decision asks Redis
			good = good && f["messages"]+least*f["fails"] >= least && f["bytes"] >= 100*least*(1-f["fails"]) && f["script"] > 0
		}
		// So small a fleet has credit, and hybrid may send nothing in such a short time.
		if row.Name == "global" {
			good = good && f["messages"] > 0 && f["bytes"] > 0 && f["script"] > 0
		}
	case "idle":
		good = row.Name != idleLimiter || f["keys"] == float64(tiny.idleKeys)
	case "churn":
		good = f["keys"] == float64(tiny.churnKeys) && f["gc"] > 0 && f["gc"] < 1
		if evicted := row.Median("evicted"); row.Name != plainCache {
			good = good && evicted >= 0.9 && evicted <= 1
		}
	case "beat":
		good = f["messages"] <= 3 // a second may have two
	case "survival":
		good = row.Median("missed") > 0 || row.Name != plainCache
	}
	if !good {
		t.Errorf("%s, %s, %s: %+v", row.Table, row.Load, row.Name, f)
	}
}

// TestMessagesOfADecision checks the number of messages of a decision, with one
// caller at a time. Then no call is late or repeated, so the number is a
// property of the limiter. On a busy machine, or with many callers, it is not.
func TestMessagesOfADecision(t *testing.T) {
	t.Parallel()
	srv := testServer(t)
	want := map[string]float64{"hybrid": 0, "global": 1, "redis_rate": 1, "ulule/limiter": 1, "throttled": 3, "go-zero TokenLimiter": 1}
	for _, k := range kinds {
		w := new(benchkit.Wire)
		target, err := k.make(t.Context(), srv.Addr, w, hybridlimit.PerSecond(hotRate))
		if err != nil {
			t.Fatal(err)
		}
		const warm, calls = 5, 40
		for range warm {
			if _, err := target.allow(t.Context(), hotKey); err != nil {
				t.Errorf("%s: %v", k.name, err)
			}
		}
		before, _, _ := w.Traffic()
		for range calls {
			if allowed, err := target.allow(t.Context(), hotKey); err != nil || !allowed {
				t.Errorf("%s: %t, %v", k.name, allowed, err)
			}
		}
		after, _, _ := w.Traffic()
		got := float64(after-before) / calls
		if got < want[k.name] || got > want[k.name]+0.25 { // more: syncs of hybrid, or a new connection of another
			t.Errorf("%s: %.3f messages a decision, want %g", k.name, got, want[k.name])
		}
		target.close()
	}
}

func TestAgainst(t *testing.T) {
	t.Parallel()
	srv := testServer(t)
	file := filepath.Join(t.TempDir(), "old.lua")
	if err := os.WriteFile(file, []byte("-- of yesterday\n"+lua.Batch.Source), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := against(t.Context(), srv, file, 3, 64)
	if err != nil || strings.Count(text, "\n") != 5 || strings.Contains(text, "NaN") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := against(t.Context(), srv, file+".not", 3, 64); err == nil {
		t.Error("no error for a file that does not exist")
	}
}

// TestMissed checks that a required figure that is not reached is an error.
func TestMissed(t *testing.T) {
	// made returns results that reach all figures, after a change of one row.
	made := func(table, load, name, figure string, v float64) *results {
		r := rowsOf(whole, atBounds)
		if table != "" {
			r.Row(table, load, name).Rounds[0][figure] = v
		}
		return r
	}
	if err := benchkit.Missed(made("", "", "", "", 0).musts()); err != nil {
		t.Errorf("all figures are reached, got %v", err)
	}
	for what, change := range map[string]struct {
		table, load, name, figure string
		v                         float64
	}{
		"pipeline":                    {"op", "", "64", "cpu", 6.6},
		"messages per":                {"decision", onHotKey, "hybrid", "messages", 0.0021},
		"decisions/s on the hot key":  {"decision", onHotKey, "hybrid", "perSecond", 29_999},
		"evicted":                     {"survival", "", ownCache, "missed", 0.2},
		"sync of one op":              {"op", "", "1", "bytes", 251},
		"CPU of a decision on 5 000":  {"decision", onOwnKeys, "global", "cpu", 20.1},
		"decisions/s on 5 000":        {"decision", onOwnKeys, "global", "perSecond", 149},
		"one caller":                  {"single", onOwnKeys, "global", "p50", 111},
		"allocations":                 {"single", onOwnKeys, "global", "mallocs", 13},
		"Redis: a decision of global": {"decision", onOwnKeys, "global", "bytes", 251},
		"services: errors":            {"fleet", "Zipf", "redis_rate", "astray", 0.011},
		"CPU of an insertion":         {"churn", "", ownCache, "process", 351},
		"a heartbeat":                 {"beat", "1", "100", "cpu", 20.1},
		"the same / with one":         {"beat", "1", "1", "cpu", 16},
		"an idle process":             {"beat", "1", "100", "messages", 1.1},
		"burst of 1 s":                {"hot", "1 s", "RateLeaseLimiter", "ops", 1.1},
	} {
		r := made(change.table, change.load, change.name, change.figure, change.v)
		if err := benchkit.Missed(r.musts()); err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
		if page := r.page(); strings.Count(page, "**missed**") != 1 {
			t.Errorf("%s: the page has\n%s", what, page)
		}
	}
	for _, m := range fleetMusts() {
		much := made(m.Table, m.Load, m.Name, m.Figure, 1.01*atBounds(m.Table, m.Load, m.Name)[m.Figure])
		nothing := made("", "", "", "", 0)
		delete(nothing.Row(m.Table, m.Load, m.Name).Rounds[0], m.Figure)
		for what, r := range map[string]*results{"too much": much, "nothing": nothing} {
			if err := benchkit.Missed(r.musts()); err == nil || !strings.Contains(err.Error(), m.What) {
				t.Errorf("%s, %s: %v", what, m.What, err)
			}
		}
	}
}

// atBounds returns the figures of a row that are at their bounds.
func atBounds(table, load, name string) benchkit.Figures {
	f := benchkit.Figures{
		"cpu": 20, "alone cpu": 10, "messages": 1, "perSecond": 100, "missed": 0.1, "bytes": 250, "p50": 100, "mallocs": 12.9,
		"process": 100, "astray": 0.01,
	}
	switch {
	case table == "op":
		f["cpu"] = 6.5
	case table == "decision" && name == "hybrid":
		f["messages"], f["perSecond"] = 0.002, 30_000
	case table == "decision" && load == onOwnKeys && name == "global":
		f["perSecond"] = 150
	case table == "single" && name == "global":
		f["p50"] = 110
	case name == ownCache:
		f["process"] = 350
	case table == "hot":
		f["ops"] = map[string]float64{"1 s": 1, "10 s": 0.5}[load]
	}
	for _, m := range fleetMusts() {
		if m.Table == table && m.Load == load && m.Name == name {
			if m.To == "" {
				f[m.Figure] = 1
			}
			f[m.Figure] *= m.Bound.Value
		}
	}
	return f
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		benchkit.Whole(0): "0", benchkit.Whole(999.9): "999", benchkit.Whole(1000): "1 000", benchkit.Whole(1234567): "1 234 567",
		small(0): "0", small(0.00012345): "0.00012", small(0.5): "0.5", small(12.345): "12.3", small(1234.5): "1234",
		micros(319): "0.319 µs", micros(12_345_678): "12 345 µs",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
