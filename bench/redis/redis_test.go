package main

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
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
	fleetRounds: 2,
	fleets: []fleetSize{
		{name: "few calls", kinds: kindsOf("hybrid", "global", "redis_rate"), limit: hybridlimit.PerMinute(100), members: 2, keys: 300, perSecond: 300, lasts: 200 * time.Millisecond, settle: 100 * time.Millisecond},
		{name: "two limits", kinds: modeKinds, limit: hybridlimit.PerSecond(100), zipf: true, two: true, members: 2, keys: 300, perSecond: 300, lasts: 200 * time.Millisecond, settle: 100 * time.Millisecond},
	},
}

func testServer(t *testing.T) *server {
	t.Helper()
	redistest.Need(t)
	srv, err := startServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.close)
	return srv
}

// TestMeasurement checks the facts that depend neither on the length of the
// measurement nor on the load of the machine: traffic and stored keys.
func TestMeasurement(t *testing.T) {
	var r results
	r.scale = tiny
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
				if err := section.measure(&r, ctx, srv); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
	if t.Failed() || t.Skipped() || len(r.costs) == 0 {
		t.SkipNow() // reported above
	}
	checkCosts(t, r.costs)
	checkDecisions(t, r.decisions)
	if len(r.fleets) != len(tiny.fleets) {
		t.Fatalf("%d loads of fleets", len(r.fleets))
	}
	for i, f := range r.fleets {
		if len(f.rows) != len(tiny.fleets[i].kinds) {
			t.Fatalf("%s: %d fleets", f.size.name, len(f.rows))
		}
		checkFleets(t, f)
	}
	if r.idle.keys != tiny.idleKeys || len(r.idle.with) != tiny.rounds || len(r.idle.without) != tiny.rounds {
		t.Errorf("idle: %+v", r.idle)
	}
	for i, c := range r.churn {
		evicted := c.cost.median(func(i insertion) float64 { return i.evicted })
		if c.keys != tiny.churnKeys || len(c.cost) != tiny.rounds || c.gcShare <= 0 || c.gcShare >= 1 || i > 0 && (evicted < 0.9 || evicted > 1) {
			t.Errorf("churn: %+v", c)
		}
	}
	for _, row := range r.beats {
		if len(row.cost) != tiny.rounds || row.messages > 3 { // a second may have two
			t.Errorf("heartbeats: %+v", row)
		}
	}
	if len(r.survival) != 2 || r.survival[0].missed.median(same) <= 0 {
		t.Errorf("survival: %+v", r.survival)
	}
	page := r.page()
	for _, want := range []string{"# The cost for Redis", "## A synced op", "## A decision", "## Services", "`SCRIPT FLUSH`", "## Idle", "## Heartbeats", "## Many keys\n", "| **64** |", "go-zero TokenLimiter"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
		t.Errorf("the page has NaN or Inf:\n%s", page)
	}
	if got := len(r.musts()); got != 20 {
		t.Errorf("%d required figures, want 20", got)
	}
}

func checkCosts(t *testing.T, rows []costRow) {
	t.Helper()
	if len(rows) != len(sizes) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, row := range rows {
		if row.size != sizes[i] || len(row.batch) != tiny.rounds || len(row.pipeline) != tiny.rounds {
			t.Errorf("row %d: %+v", i, row)
		}
		for _, c := range slices.Concat(row.batch, row.pipeline) {
			if c.cpu < 0 || c.usec <= 0 || c.sent < 50 || c.sent > 400 || c.received < 50 || c.received > 200 {
				t.Errorf("batches of %d: %+v", row.size, c)
			}
		}
	}
	batch, alone := rows[4].batch[0], rows[4].pipeline[0]
	if rows[4].size != protocol.MaxOps || batch.sent >= alone.sent || batch.received >= alone.received {
		t.Errorf("an op in a batch of %d takes %+v, alone %+v", rows[4].size, batch, alone)
	}
}

func checkDecisions(t *testing.T, rows []*decisionRow) {
	t.Helper()
	if len(rows) != len(kinds)+4 {
		t.Fatalf("%d rows", len(rows))
	}
	for i, row := range rows {
		if len(row.cost) != tiny.rounds || (row.took.TotalCount() > 0) != (i < len(kinds)) {
			t.Errorf("%s, %s: %d rounds, %d times", row.name, row.load, len(row.cost), row.took.TotalCount())
		}
		for _, c := range row.cost {
			if c.perSecond <= 0 || i > 0 && c.sent <= 0 { // hybrid may send nothing in such a short time
				t.Errorf("%s, %s: %+v", row.name, row.load, c)
			}
		}
		if want := tiny.rounds; row.load == onOwnKeys && len(row.single) != want || row.load != onOwnKeys && len(row.single) > 0 {
			t.Errorf("%s, %s: %d rounds of one caller", row.name, row.load, len(row.single))
		}
		if len(row.storms) != len(row.single) {
			t.Errorf("%s, %s: %d storms", row.name, row.load, len(row.storms))
		}
		for _, c := range row.storms {
			// At least one call sends the script, and each sends its key.
			if c.fails == 0 && (c.messages <= 0 || c.sent*callers < 500 || c.slowest <= 0) {
				t.Errorf("%s, %s, storm: %+v", row.name, row.load, c)
			}
		}
		for _, c := range row.single {
			if c.p50 <= 0 || c.p99 < c.p50 || c.perSecond <= 0 || c.perSecond > 1e9/c.p50*2 || c.mallocs < 1 {
				t.Errorf("%s, %s, one caller: %+v", row.name, row.load, c)
			}
		}
	}
}

func checkFleets(t *testing.T, f *fleetTable) {
	t.Helper()
	rows := f.rows
	for _, row := range rows {
		if len(row.cost) != tiny.rounds {
			t.Fatalf("%s: %d rounds", row.name, len(row.cost))
		}
		for i, c := range row.cost {
			if c.calls < 1 || c.calls != rows[0].cost[i].calls {
				t.Errorf("%s, round %d: %v calls, and %s has %v", row.name, i, c.calls, rows[0].name, rows[0].cost[i].calls)
			}
			least := 1.0
			if f.size.two {
				least = 2
			}
			if row.name == "redis_rate" && (c.messages+least*c.fails < least || c.bytes < 100*least*(1-c.fails) || c.script <= 0) {
				t.Errorf("%s, round %d: not every decision asked Redis: %+v", row.name, i, c)
			}
			// So small a fleet has credit, and hybrid may send nothing in such a short time.
			if row.name == "global" && (c.messages <= 0 || c.bytes <= 0 || c.script <= 0) {
				t.Errorf("%s, round %d: %+v", row.name, i, c)
			}
			if c.process <= 0 || c.p50 <= 0 || c.p99 < c.p50 || c.denied > 0 || c.fails > 1 || c.without > 1 {
				t.Errorf("%s, round %d: %+v", row.name, i, c)
			}
		}
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
		w := new(wire)
		target, err := k.make(t.Context(), srv, w, hybridlimit.PerSecond(hotRate))
		if err != nil {
			t.Fatal(err)
		}
		const warm, calls = 5, 40
		for range warm {
			if _, err := target.allow(t.Context(), hotKey); err != nil {
				t.Errorf("%s: %v", k.name, err)
			}
		}
		before := w.traffic()
		for range calls {
			if allowed, err := target.allow(t.Context(), hotKey); err != nil || !allowed {
				t.Errorf("%s: %t, %v", k.name, allowed, err)
			}
		}
		got := float64(w.traffic().since(before).messages) / calls
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

// TestRequests checks that each command of a stream is counted once, for any
// division of the stream into pieces.
func TestRequests(t *testing.T) {
	const stream = "*1\r\n$4\r\nPING\r\n" +
		"*3\r\n$3\r\nSET\r\n$11\r\n*9\r\n$3\r\n\r\n*\r\n$0\r\n\r\n" + // data that looks like a command
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var r requests
		var n int64
		for rest := []byte(stream); len(rest) > 0; {
			k := 1 + rng.IntN(len(rest))
			n += r.count(rest[:k])
			rest = rest[k:]
		}
		if n != 3 {
			t.Fatalf("%d commands, want 3", n)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		s    series[float64]
		want float64
	}{{nil, 0}, {series[float64]{3}, 3}, {series[float64]{9, 1, 2}, 2}, {series[float64]{4, 1, 2, 100}, 3}} {
		if got := tc.s.median(same); got != tc.want {
			t.Errorf("median of %v is %v, want %v", tc.s, got, tc.want)
		}
	}
}

// TestMissed checks that a required figure that is not reached is an error.
func TestMissed(t *testing.T) {
	// made returns results that reach all figures, after a change.
	made := func(change func(*results)) *results {
		r := &results{
			costs: []costRow{
				{size: 1, batch: series[opCost]{{sent: 150, received: 100}}},
				{size: protocol.MaxOps, batch: series[opCost]{{cpu: 6.5}}, pipeline: series[opCost]{{cpu: 10}}},
			},
			decisions: []*decisionRow{
				{name: "hybrid", cost: series[perDecision]{{messages: 0.002, perSecond: 30_000}}},
				{name: "redis_rate", cost: series[perDecision]{{messages: 1, perSecond: 100}}},
				{name: "hybrid", load: "another", cost: series[perDecision]{{messages: 1, perSecond: 1}}},
				{
					name: "global", load: onOwnKeys,
					cost:   series[perDecision]{{cpu: 10, perSecond: 150, sent: 150, received: 100}},
					single: series[oneCaller]{{p50: 110, mallocs: 12.9}},
				},
				{
					name: "redis_rate", load: onOwnKeys,
					cost:   series[perDecision]{{cpu: 10, perSecond: 100}},
					single: series[oneCaller]{{p50: 100}},
				},
			},
			fleets:   boundFleets(),
			churn:    []churnRow{{cost: series[insertion]{{process: 100}}}, {cost: series[insertion]{{process: 350}}}},
			survival: []survivalRow{{missed: series[float64]{0.1}}, {missed: series[float64]{0.1}}},
		}
		change(r)
		return r
	}
	if err := made(func(*results) {}).missed(); err != nil {
		t.Errorf("all figures are reached, got %v", err)
	}
	for name, change := range map[string]func(*results){
		"pipeline":                    func(r *results) { r.costs[1].batch[0].cpu = 6.6 },
		"messages":                    func(r *results) { r.decisions[0].cost[0].messages = 0.0021 },
		"decisions/s on the hot key":  func(r *results) { r.decisions[0].cost[0].perSecond = 29_999 },
		"evicted":                     func(r *results) { r.survival[1].missed[0] = 0.2 },
		"sync of one op":              func(r *results) { r.costs[0].batch[0].received = 101 },
		"CPU of a decision on 5 000":  func(r *results) { r.decisions[3].cost[0].cpu = 10.1 },
		"decisions/s on 5 000":        func(r *results) { r.decisions[3].cost[0].perSecond = 149 },
		"one caller":                  func(r *results) { r.decisions[3].single[0].p50 = 111 },
		"allocations":                 func(r *results) { r.decisions[3].single[0].mallocs = 13 },
		"Redis: a decision of global": func(r *results) { r.decisions[3].cost[0].sent = 151 },
		"services: errors":            func(r *results) { r.fleets[0].row("redis_rate").cost[0].fails = 0.011 },
		"CPU of an insertion":         func(r *results) { r.churn[1].cost[0].process = 351 },
	} {
		r := made(change)
		if err := r.missed(); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if page := r.page(); strings.Count(page, "**missed**") != 1 {
			t.Errorf("%s: the page has\n%s", name, page)
		}
	}
	for _, m := range fleetBounds {
		for _, what := range []string{"too much", "nothing"} {
			if what == "nothing" && m.absolute {
				continue
			}
			r := made(func(r *results) {
				for _, f := range r.fleets {
					if f.size.name != m.load {
						continue
					}
					if what == "nothing" {
						f.row("redis_rate").cost, f.row(m.limiter).cost = nil, nil
						continue
					}
					c := &f.row(m.limiter).cost[0]
					*c = fewCalls{cpu: 1.01 * c.cpu, messages: 1.01 * c.messages, p50: 1.01 * c.p50}
				}
			})
			if err := r.missed(); err == nil || !strings.Contains(err.Error(), m.load+": "+m.what+": "+m.limiter) {
				t.Errorf("%s, %s, %s, %s: %v", what, m.load, m.what, m.limiter, err)
			}
		}
	}
}

// boundFleets returns figures of fleets that are at their bounds.
func boundFleets() (tables []*fleetTable) {
	for _, load := range fleetLoads(1) {
		f := &fleetTable{size: load}
		for _, k := range load.kinds {
			c := fewCalls{cpu: 100, p50: 100, messages: 1, fails: 0.005, without: 0.005}
			for _, m := range fleetBounds {
				if m.load == load.name && m.limiter == k.name {
					switch m.what {
					case "Redis CPU":
						c.cpu *= m.bound
					case "p50":
						c.p50 *= m.bound
					default:
						c.messages = m.bound
					}
				}
			}
			f.rows = append(f.rows, &fleetRow{name: k.name, cost: series[fewCalls]{c}})
		}
		tables = append(tables, f)
	}
	return tables
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		thousands(0): "0", thousands(999): "999", thousands(1000): "1 000", thousands(1234567): "1 234 567",
		small(0): "0", small(0.00012345): "0.00012", small(0.5): "0.5", small(12.345): "12.3", small(1234.5): "1234",
		micros(319): "0.319 µs", micros(12_345_678): "12 345 µs",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
