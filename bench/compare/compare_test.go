package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestShort lets all rivals take turns at all loads at a small size, and checks
// the page that make bench would write. The decisions of each rival are tested
// in package rivals.
func TestShort(t *testing.T) {
	redistest.Need(t)
	p := plan{
		rivals: everyone, goroutines: []int{1, 8}, rounds: 2,
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
	raw = append([]byte(thisOrigin("none", p.slice).String()), raw...)
	page, err := newPage(raw)
	if err != nil {
		t.Fatal(err)
	}
	if q := page.plan; len(q.rivals) != len(p.rivals) || len(q.workloads) != len(p.workloads) || q.rounds != p.rounds ||
		!slices.Equal(q.goroutines, p.goroutines) || q.slice != p.slice {
		t.Errorf("the rounds are of the plan %+v, want %+v", q, p)
	}
	res := page.results
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
					if xs := res.cells[c].All(unit); len(xs) != p.rounds {
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
	if err := page.write(dir, raw); err != nil {
		t.Fatal(err)
	}
	text := read(t, filepath.Join(dir, "RESULTS.md"))
	for _, r := range p.rivals {
		want := 1 // among the limiters
		if _, ok := res.key[r.Name]; ok {
			want++
		}
		for _, w := range p.workloads {
			if takesPart(r, w) {
				want++
			}
		}
		if n := strings.Count(text, "\n| "+strong(r.Name)+" |"); n != want {
			t.Errorf("%s has %d rows, want %d", r.Name, n, want)
		}
	}
	if strings.Contains(text, "NaN") || strings.Count(text, "\n| `Allow`, ") != 7 ||
		strings.Count(text, "\n| `AllowAll` of two limits, ") != 1 || strings.Count(text, "\n| `local`, ") != 4 || strings.Count(text, "\n| bytes of memory for a key") != 2 {
		t.Errorf("a figure is missing:\n%s", text)
	}
	for _, w := range p.workloads {
		wellFormed(t, read(t, filepath.Join(dir, resultsDir, w.Name+".svg")))
	}
}

// TestPageHasTheRounds checks that RESULTS.md and its pictures are those of the rounds.
func TestPageHasTheRounds(t *testing.T) {
	page, err := newPage([]byte(read(t, "../results/rounds.txt")))
	if err != nil {
		t.Fatal(err)
	}
	const again = "cd bench && go run ./compare -from results/rounds.txt -write ."
	if read(t, "../RESULTS.md") != page.markdown() {
		t.Errorf("RESULTS.md is not the page of results/rounds.txt: %s", again)
	}
	for name, svg := range page.figures() {
		if read(t, filepath.Join("../results", name)) != string(svg) {
			t.Errorf("results/%s is not the picture of results/rounds.txt: %s", name, again)
		}
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
	fromParent, requests := io.Pipe()
	replies, toParent := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(t.Context(), xtimeBare, fromParent, toParent)
		toParent.CloseWithError(err)
		ended <- err
	}()
	enc, dec := json.NewEncoder(requests), json.NewDecoder(replies)
	d := slice{time.Millisecond, time.Millisecond, time.Millisecond}
	for i, r := range []request{
		{Open: true, Workload: workloads[0], Goroutines: 1, Slice: d},
		{Workload: workloads[0], Goroutines: 2, Slice: d},
	} {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
		var a struct {
			Reply reply
			Err   string
		}
		if err := dec.Decode(&a); err != nil || a.Err != "" || (a.Reply.Figures.Calls > 0) != (i == 1) {
			t.Errorf("%+v, %v", a, err)
		}
	}
	requests.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := serve(t.Context(), "nobody", nil, nil); err == nil {
		t.Error("no error for an unknown rival")
	}
	if err := serve(t.Context(), xtimeBare, strings.NewReader("x"), io.Discard); err == nil {
		t.Error("no error for a malformed request")
	}
}

func TestParse(t *testing.T) {
	const good = "BenchmarkDecide/workload=hot/goroutines=1/rival=%-2 10 5 ns/op 1 p99.9-ns\n"
	var raw strings.Builder
	raw.WriteString("machine: a; b\nmodules: x v1, y v2\nturn: 1ms 2ms 3ms\n")
	for _, x := range []string{"4", "6", "5", "100", "5", "5"} {
		raw.WriteString(strings.Replace(strings.Replace(good, "%", "hybrid", 1), " 5 ns", " "+x+" ns", 1))
		raw.WriteString(strings.Replace(strings.Replace(good, "%", xtimeBare, 1), " 5 ns", " 20 ns", 1))
	}
	raw.WriteString("BenchmarkKey/rival=hybrid 10 300 B/key\n")
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
	if res.center(a, "p99.9-ns") != 1 || res.key["hybrid"] != 300 || !math.IsNaN(res.center(a, "x")) {
		t.Errorf("%+v", res)
	}
	if o := res.origin; o.machine != "a; b" || o.modules["x"] != "v1" || o.modules["y"] != "v2" ||
		o.slice != (slice{1e6, 2e6, 3e6}) || !strings.HasPrefix(raw.String(), o.String()) {
		t.Errorf("%+v", o)
	}
	p := page{results: res, plan: plan{goroutines: []int{1}}}
	if table := p.mustTable(); !strings.Contains(table, "| 0.32 | 0.25 | 0.20 to 5.00 |") || strings.Contains(table, "**no**") {
		t.Error(table)
	}
	p.results.key["hybrid"] = hybridKeyBytes + 1
	if table := p.mustTable(); !strings.Contains(table, "**no**") {
		t.Error(table)
	}
	const turn = "turn: 1ms 1ms 1ms\n"
	for _, bad := range []string{
		"", turn + "BenchmarkX 1 1 ns/op\n", turn + "BenchmarkDecide/workload=hot/goroutines=x/rival=y 1 1 ns/op\n",
		turn + "BenchmarkDecide 1 x\n", strings.Replace(good, "%", "hybrid", 1), "turn: 1ms\n" + good, "turn: 1 2 3\n" + good,
	} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q was parsed as a result", bad)
		}
	}
}

// TestMusts checks that each promise holds at its bound, and not above it.
func TestMusts(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range musts([]int{1, 2, 64}) {
		if seen[m.what] {
			t.Errorf("%s: twice", m.what)
		}
		seen[m.what] = true
		at, above := m.bound, m.bound+0.01
		if m.b == (cell{}) {
			at, above = m.bound+0.99, m.bound+1
		}
		for _, tc := range []struct {
			got  float64
			want string
		}{{at, " yes |"}, {above, " **no** |"}} {
			one := func(v float64) *benchkit.Row {
				return &benchkit.Row{Rounds: []benchkit.Figures{{m.unit: v, "cpu-ns/op": 1}}}
			}
			res := results{cells: map[cell]*benchkit.Row{m.a: one(tc.got), m.b: one(1)}}
			if m.b == (cell{}) {
				delete(res.cells, m.b)
			}
			table := page{results: res, plan: plan{goroutines: []int{1, 2, 64}}}.mustTable()
			if !strings.Contains(table, "\n| "+m.what+" | ") || !strings.HasSuffix(table, tc.want+"\n") {
				t.Errorf("%s, %v:\n%s", m.what, tc.got, table)
			}
		}
	}
	for name, most := range map[string]float64{ours: hybridKeyBytes, alone: localKeyBytes} {
		for bytes, want := range map[float64]string{most: " yes |", most + 1: " **no** |"} {
			table := page{results: results{key: map[string]float64{name: bytes}}}.mustTable()
			if !strings.HasSuffix(table, want+"\n") {
				t.Errorf("%v bytes for a key of %s:\n%s", bytes, name, table)
			}
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
		if w.Fresh {
			w.Keys *= freshTimes
			if len(seen) != w.Keys || seen[keyName(0)] {
				t.Errorf("%s: %d of %d keys, or one that fills the limiter", w.Name, len(seen), w.Keys)
			}
		}
		if len(seen) > w.Keys || len(seen) < w.Keys/2 {
			t.Errorf("%s: %d of %d keys", w.Name, len(seen), w.Keys)
		}
	}
	o := workloads[len(workloads)-1]
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

// TestWalk checks the positions of the calls: those of one goroutine follow each
// other, and of fresh keys none comes again before all others came, in whichever
// goroutine or step.
func TestWalk(t *testing.T) {
	s := subject{seq: make([]string, 1024), chunk: 256}
	for _, tc := range []struct {
		g, of, step int
		want        []int
	}{
		{0, 1, 256, []int{0, 256, 512, 768, 0}},
		{1, 2, 256, []int{512, 768, 0, 256}},
		{1, 2, 1, []int{512, 513, 514}},
		{0, 1, 600, []int{0, 0}},
	} {
		next := s.walk(tc.g, tc.of, tc.step)
		for i, want := range tc.want {
			if got := next(); got != want {
				t.Errorf("%+v: position %d is %d", tc, i, got)
			}
		}
	}
	w := workload{Keys: 300, Fresh: true}
	s = subject{seq: w.sequence(), chunk: maxChunk, fresh: new(atomic.Int64)}
	walks := []func() int{s.walk(0, 2, maxChunk), s.walk(1, 2, maxChunk), s.walk(0, 1, 1)}
	steps := []int{maxChunk, maxChunk, 1}
	var asked []string
	for i := range 100 {
		at := walks[i%3]()
		asked = append(asked, s.seq[at:at+steps[i%3]]...)
	}
	last := map[string]int{}
	for i, key := range asked {
		if was, ok := last[key]; ok && i-was != w.Keys*freshTimes {
			t.Fatalf("call %d has the key of call %d", i, was)
		}
		last[key] = i
	}
	if len(asked) < 2*len(last) {
		t.Errorf("%d calls on %d keys", len(asked), len(last))
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
