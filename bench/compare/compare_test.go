package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// TestShort lets all rivals take turns at all loads at a small size, and checks
// the page that make bench would write. The decisions of each rival are tested
// in package rivals.
func TestShort(t *testing.T) {
	redistest.Need(t)
	p := plan{
		rivals: append([]rivals.Rival{nothing}, rivals.All...), goroutines: []int{1, 8}, rounds: 2,
		slice: slice{2 * time.Millisecond, 5 * time.Millisecond, 2 * time.Millisecond}, atOnce: true,
	}
	for _, w := range workloads {
		p.workloads = append(p.workloads, w.scaled(1000))
	}
	var workers []worker
	defer func() { closeAll(workers) }()
	for _, r := range p.rivals {
		b, err := newBench(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		workers = append(workers, b)
	}
	raw, err := p.measure(t.Context(), workers, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	res, err := parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.rivals {
		for _, w := range p.workloads {
			for _, g := range p.goroutines {
				c := cell{r.Name, w.Name, g}
				if !takesPart(r, w) {
					if res.cells[c] != nil {
						t.Errorf("%v has figures, but does not take part", c)
					}
					continue
				}
				for _, unit := range []string{"ns/op", "p50-ns", "p99-ns", "p99.9-ns", "max-ns", "decisions/s", "allocs/op", "denied/op"} {
					if xs := res.cells[c][unit]; len(xs) != p.rounds {
						t.Errorf("%v: %d rounds of %s", c, len(xs), unit)
					}
				}
				sane(t, res, c)
			}
		}
		if _, ok := res.key[r.Name]; ok != (takesPart(r, workloads[3]) && r.Where != rivals.InRedis) {
			t.Errorf("%s: memory of a key: %t", r.Name, ok)
		}
	}
	dir := t.TempDir()
	page := page{results: res, plan: p, machine: thisMachine("none")}
	if err := page.write(dir, raw); err != nil {
		t.Fatal(err)
	}
	text := read(t, filepath.Join(dir, "RESULTS.md"))
	for _, r := range p.rivals {
		if n := strings.Count(text, "| "+strong(r.Name)+" |"); n < 3 {
			t.Errorf("%s has %d rows", r.Name, n)
		}
	}
	if strings.Contains(text, "NaN") || strings.Count(text, "\n| `Allow`, ") != 6 {
		t.Errorf("a figure is missing:\n%s", text)
	}
	for _, w := range p.workloads {
		wellFormed(t, read(t, filepath.Join(dir, resultsDir, w.Name+".svg")))
	}
}

func sane(t *testing.T, res results, c cell) {
	t.Helper()
	v := func(unit string) float64 { return res.center(c, unit) }
	if !(v("ns/op") > 0) || !(v("decisions/s") > 0) || !(v("p50-ns") <= v("p99-ns")) || !(v("p99-ns") <= res.most(c, "max-ns")) {
		t.Errorf("%v: %v", c, res.cells[c])
	}
	if d := v("denied/op"); !(d >= 0 && d <= 1) || c.load == denied && d < 0.5 {
		t.Errorf("%v: %v denied", c, d)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Count(text, "<circle") < 10 {
		t.Errorf("nothing is drawn, or not a number:\n%s", text)
	}
}

// TestServe checks the protocol with a worker in another process: one line for
// each message.
func TestServe(t *testing.T) {
	var in, out bytes.Buffer
	enc := json.NewEncoder(&in)
	d := slice{time.Millisecond, time.Millisecond, time.Millisecond}
	for _, r := range []request{
		{Open: true, Workload: workloads[0], Goroutines: 1, Slice: d},
		{Workload: workloads[0], Goroutines: 2, Slice: d},
	} {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := serve(t.Context(), xtimeBare, &in, &out); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(&out)
	for i := range 2 {
		var r reply
		if err := dec.Decode(&r); err != nil || r.Err != "" || (r.Figures.Calls > 0) != (i == 1) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if err := serve(t.Context(), "nobody", &in, &out); err == nil {
		t.Error("no error for an unknown rival")
	}
	if err := serve(t.Context(), xtimeBare, strings.NewReader("x"), &out); err == nil {
		t.Error("no error for a malformed request")
	}
}

func TestParse(t *testing.T) {
	const good = "BenchmarkDecide/workload=hot/goroutines=1/rival=%-2 10 5 ns/op 1 p99.9-ns\n"
	var raw strings.Builder
	for _, x := range []string{"4", "6", "5", "100", "5", "5"} {
		raw.WriteString(strings.Replace(strings.Replace(good, "%", "hybrid", 1), " 5 ns", " "+x+" ns", 1))
		raw.WriteString(strings.Replace(strings.Replace(good, "%", xtimeBare, 1), " 5 ns", " 20 ns", 1))
	}
	raw.WriteString("BenchmarkKey/rival=hybrid 10 400 B/key\n")
	res, err := parse([]byte(raw.String()))
	if err != nil {
		t.Fatal(err)
	}
	a, b := cell{ours, hot, 1}, cell{xtimeBare, hot, 1}
	if m := res.center(a, "ns/op"); m != 5 {
		t.Errorf("median %v", m)
	}
	if r, lo, hi, ok := res.ratio(a, b, "ns/op"); !ok || r != 0.25 || lo != 0.2 || hi != 5 {
		t.Errorf("%v, %v to %v", r, lo, hi)
	}
	if res.center(a, "p99.9-ns") != 1 || res.key["hybrid"] != 400 || !math.IsNaN(res.center(a, "x")) {
		t.Errorf("%+v", res)
	}
	p := page{results: res, plan: plan{goroutines: []int{1}}}
	if table := p.mustTable(); !strings.Contains(table, "| 0.4 | 0.25 | 0.20 to 5.00 |") || strings.Contains(table, "**no**") {
		t.Error(table)
	}
	p.results.key["hybrid"] = maxKeyBytes + 1
	if table := p.mustTable(); !strings.Contains(table, "**no**") {
		t.Error(table)
	}
	for _, bad := range []string{"", "BenchmarkX 1 1 ns/op\n", "BenchmarkDecide/workload=hot/goroutines=x/rival=y 1 1 ns/op\n", "BenchmarkDecide 1 x\n"} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q was parsed as a result", bad)
		}
	}
}

// TestPlausible checks that implausible figures are refused, so that a mistake
// does not become a figure.
func TestPlausible(t *testing.T) {
	good := figures{Calls: 100, Allowed: 100, Took: 1, P50: 1, P99: 1, P999: 1, Max: 1}
	closed := good
	closed.Allowed = 0
	none := good
	none.Calls = 0
	for _, tc := range []struct {
		f    figures
		load string
		ok   bool
	}{
		{good, hot, true}, {closed, hot, false}, {none, hot, false}, {closed, denied, true}, {good, denied, false}, {closed, over, true},
	} {
		for _, w := range workloads {
			if w.Name == tc.load && (tc.f.plausible(nothing, w) == nil) != tc.ok {
				t.Errorf("%s: %+v: %v", w.Name, tc.f, tc.f.plausible(nothing, w))
			}
		}
	}
}

func TestWorkloads(t *testing.T) {
	for _, w := range workloads {
		w = w.scaled(100)
		seen := map[string]bool{}
		for _, key := range w.sequence() {
			seen[key] = true
		}
		if len(seen) > w.Keys || len(seen) < w.Keys/2 {
			t.Errorf("%s: %d of %d keys", w.Name, len(seen), w.Keys)
		}
	}
	o := workloads[4]
	if got, want := o.limitFor(4_000_000), hybridlimit.TokenBucket(1000, 100*time.Millisecond, 1000); got != want {
		t.Errorf("a twentieth of 4 000 000 a second over 20 keys is %v, want %v", got, want)
	}
	if got := o.limitFor(1); got.Rate != 1 {
		t.Errorf("%v", got)
	}
	if got := workloads[0].limitFor(1); got != far {
		t.Errorf("%v", got)
	}
}

func TestPick(t *testing.T) {
	p := plan{rivals: rivals.All, workloads: workloads}
	if err := p.pick("^hybrid$", "hot|zipf"); err != nil || len(p.rivals) != 1 || len(p.workloads) != 2 {
		t.Errorf("%v, %v, %v", p.rivals, p.workloads, err)
	}
	if p.pick("(", "") == nil || p.pick("", "(") == nil {
		t.Error("no error for a malformed pattern")
	}
}
