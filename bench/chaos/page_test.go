package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// TestPages checks that the page with the promises has the worst row of each promise and every broken promise, and that
// the record has each row whole.
func TestPages(t *testing.T) {
	decisions := openTimes{took: slices.Repeat([]time.Duration{5300 * time.Nanosecond}, 100)}
	row := func(name, on string, v verdict) *outcome {
		return &outcome{plan{topology: on, faults: []*fault{{name: name}}, mode: hybrid.ModeStrict}, &v}
	}
	calls, err := callsRows[1].plan()
	if err != nil {
		t.Fatal(err)
	}
	p := page{command: "make chaos", machine: "A machine.", rows: []*outcome{
		row("one", topologySingle, verdict{figures: &figures{
			Decisions: 1000, Errors: 2, Slowest: 7 * time.Millisecond, P99: 5300 * time.Nanosecond, open: decisions,
			Shared: reach{390, 420}, Alone: reach{81, 403}, Accounting: "to the unit", Recovered: time.Second,
		}}),
		row("two", topologyCluster, verdict{Broken: []violation{{brokeBound, "too\nmuch"}}, figures: &figures{
			Decisions: 234, Slowest: 9100 * time.Microsecond, Accounting: "crash: +1 units of -2 to +3",
			Reserve: reserve{calls: 1000, admitted: 995, used: 9, rate: 10}, Losses: losses{Expired: 3},
		}}),
	}, calls: []*outcome{{calls, &verdict{callsFigures: &callsFigures{
		Calls: 150, Most: 11, MostFallback: 3, Free: 1400 * time.Millisecond, Back: 400 * time.Millisecond,
	}}}}, regions: []*outcome{{regionsRows[1].plan(), &verdict{regionsFigures: &regionsFigures{
		Excess: reach{405, 909}, Apart: reach{4, 137}, Calm: 0.997, After: 0.875, Between: 12, Messages: 99,
	}}}}}
	for text, wants := range map[string][]string{
		p.text(): {
			"| 2 of 1,234 decisions |", "= 40 ms | 9.1 ms |", "| 5.3 µs, in all rows |", "| 2 s | 1.0 s |", "| 99.5 % |", "| 1 of 2 rows |",
			"\nA machine.\n\n### One server\n", "|\n| one, *strict* | 7.0 | 390/420 | 81/403 | 1.0 |\n",
			"### Cluster\n", "|\n| two, *strict* **✗** | 9.1 | – | – | 0.0 |\n",
			"at most 3 calls", "after 1.4 s; the bound is 3 s", "the bound is 10 s.\n", "|\n| process SIGKILLed | 11/12 | 0.4 |\n",
			"at least 0.85. *Lost*", "|\n| region a cut off from b and c | 405/909 | 4/137 | 1.00 | 0.88 | 12 |\n",
			"## Broken\n\n- two on cluster, strict: bound: too much\n",
		},
		p.record(): {
			`"Machine": "A machine."`, `{"Fault":"one","Topology":"single","Mode":"strict","CPU":0,"Decisions":1000,"Errors":2,`,
			`"Slowest":7000000,"P99":5300,"Shared":"390/420","Alone":"81/403","Accounting":"to the unit"`,
			`"Mode":"strict","Broken":["bound: too\nmuch"],"CPU":0,`, `"Losses":{"Expired":3,`, `"Reserve":"99.5 %, 90 %, after 0.0 s"`,
			`{"Fault":"process SIGKILLed","Topology":"single","Mode":"auto","CPU":0,"Calls":150,`, `"Most":11,`, `"Free":1400000000`,
			`{"Fault":"region a cut off from b and c","Topology":"regions","Mode":"auto","CPU":0,"Excess":"405/909",`, `"Messages":99`,
		},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
	var rows struct{ Rates, Calls, Regions []map[string]any }
	if err := json.Unmarshal([]byte(p.record()), &rows); err != nil || len(rows.Rates) != 2 || len(rows.Calls) != 1 || len(rows.Regions) != 1 {
		t.Errorf("%v: %+v", err, rows)
	}
}

// TestOpen checks the promise about decisions without Redis over all runs: that it bounds what is beyond the canaries, to
// one decision.
func TestOpen(t *testing.T) {
	const usual, canary = 2 * time.Microsecond, 1 * time.Microsecond
	for _, c := range []struct {
		slow, beside int // of 1000
		most         time.Duration
	}{{10, 0, usual}, {11, 0, openP99 + 1}, {30, 20, usual}, {31, 20, openP99 + 1}, {1000, 1, openP99 + 1}, {0, 1000, 0}} {
		rows := make([]*outcome, 10)
		for i := range rows {
			rows[i] = &outcome{verdict: &verdict{figures: &figures{open: openTimes{
				took: slices.Repeat([]time.Duration{usual}, 100), beside: slices.Repeat([]time.Duration{canary}, 100),
			}}}}
		}
		for i := range c.slow {
			rows[i%10].verdict.open.took[i/10] = openP99 + 1
		}
		for i := range c.beside {
			rows[i%10].verdict.open.beside[i/10] = openP99 + 1
		}
		p := page{rows: rows}
		broken := c.most > openP99
		if got := p.openTimes().p99(); got != c.most || (p.checkOpen() != nil) != broken ||
			broken != strings.Contains(p.text(), "## Broken") {
			t.Errorf("%+v: %v, %v", c, got, p.checkOpen())
		}
	}
}

// TestByChance compares the bound with tables of the Poisson distribution.
func TestByChance(t *testing.T) {
	for mean, want := range map[float64]int{0: 0, 1: 6, 5: 15, 10: 24, 2000: 2168} {
		if got := byChance(mean); got != want {
			t.Errorf("mean %v: %d, want %d", mean, got, want)
		}
	}
}
