package docs

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the figures of the tables in README, docs/how-it-works.md, docs/choosing.md and docs/comparison.md")

// labRow is a row of docs/lab/results.json, which make lab writes.
type labRow struct {
	Scenario, Kind string
	Figures        map[string]float64
}

// figures has the results files, and the problems of the pages.
type figures struct {
	t    *testing.T
	lab  []labRow
	page string // the text of the page that is being compared
	bad  []string
}

func (f *figures) wrong(format string, args ...any) {
	f.bad = append(f.bad, fmt.Sprintf(format, args...))
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// of returns the row of a scenario and a kind.
func (f *figures) of(scenario, kind string) labRow {
	f.t.Helper()
	i := slices.IndexFunc(f.lab, func(r labRow) bool { return r.Scenario == scenario && r.Kind == kind })
	if i < 0 {
		f.t.Fatalf("the lab has no %s of %s", kind, scenario)
	}
	return f.lab[i]
}

// in returns a figure of a row.
func (f *figures) in(r labRow, name string) float64 {
	f.t.Helper()
	x, ok := r.Figures[name]
	if !ok {
		f.t.Fatalf("the lab has no %s of %s %s", name, r.Scenario, r.Kind)
	}
	return x
}

// row compares the last cells of a row with figures. The row is the first one with these first
// cells after a text.
func (f *figures) row(after, first string, want ...string) {
	begin := strings.Index(f.page, after)
	at := strings.Index(f.page[max(begin, 0):], "\n| "+first+" |")
	if begin < 0 || at < 0 {
		f.wrong("no row %q after %q", first, after)
		return
	}
	at += begin + 1
	line, _, _ := strings.Cut(f.page[at:], "\n")
	made := "| " + first + " | " + strings.Join(want, " | ") + " |"
	if line != made && !*update {
		f.wrong("after %q the page has\n%s\nand the results have\n%s", after, line, made)
	}
	f.page = f.page[:at] + made + f.page[at+len(line):]
}

// beyond is a part of the burst.
func beyond(part, least float64) string {
	if part < least {
		return "0"
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}

// headline compares the first table of README with bench/RESULTS.md and bench/REDIS.md.
func (f *figures) headline() {
	results, costs := read(f.t, "bench/RESULTS.md"), read(f.t, "bench/REDIS.md")
	const hot, alone = "| limiter | 1 goroutine: ns/op ± % |", "| limiter | decisions/s | p50 | p99 | allocations |"
	_, inMemory := rowsOf(f.t, results, hot)
	_, single := rowsOf(f.t, costs, alone)
	_, rest, _ := strings.Cut(costs, "| limiter | load | decisions/s | messages/decision |")
	messages := func(limiter string) string {
		_, row, _ := strings.Cut(rest, "\n| "+limiter+" | one hot key |")
		cells := strings.Split(row, " | ")
		if len(cells) < 2 {
			f.t.Fatalf("bench/REDIS.md has no hot key of %s", limiter)
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(cells[1]), 64)
		if err != nil {
			f.t.Fatal(err)
		}
		return strings.TrimRight(strconv.FormatFloat(n, 'f', 8, 64), "0.")
	}
	ns, _, _ := strings.Cut(inMemory["**hybrid**"][1], " ")
	n, err := strconv.ParseFloat(ns, 64)
	if err != nil {
		f.t.Fatal(err)
	}
	f.row("| one hot key |", "hybridlimit", fmt.Sprintf("%.0f ns", n), messages("hybrid"))
	f.row("| one hot key |", "redis_rate", single["redis_rate"][2], messages("redis_rate"))
}

// howItWorks compares the tables of docs/how-it-works.md with the lab and with bench/RESULTS.md.
func (f *figures) howItWorks() {
	for row, kinds := range map[string][]string{"`ModeAuto`, `ModeStrict`": {"auto", "strict"}, "`ModeDeferred`": {"deferred"}, "count locally, push each 50 ms": {"count-and-push"}} {
		for _, kind := range kinds {
			var cells []string
			for _, scenario := range []string{"fleet100-half ×0.5", "fleet100-over ×1.5", "fleet100-over ×10"} {
				r := f.of(scenario, kind)
				cells = append(cells, fmt.Sprintf("%.2f, %s", f.in(r, "ops/admission"), beyond(f.in(r, "exceedance/burst"), 0.000_01)))
			}
			if row == "`ModeDeferred`" { // the first excess of the table names its unit
				cells[1] += " of burst"
			}
			f.row("| 100 processes, 1000/s, burst 1000 |", row, cells...)
		}
	}
	_, ratios, _ := strings.Cut(read(f.t, "bench/RESULTS.md"), "| `Allow`")
	ratios = "| `Allow`" + ratios
	for row, measured := range map[string]string{
		"one hot key / a bare `rate.Limiter`":                         "`Allow`, hot key, 1 goroutine / x/time/rate",
		"by `Handle(key)` / the same":                                 "`Handle(key).Allow`, 1 goroutine / x/time/rate",
		"from 64 goroutines / the same":                               "`Allow`, hot key, 64 goroutines / x/time/rate, 64",
		"one hot key, denied / the same":                              "`Allow`, hot key, denied, 1 goroutine / x/time/rate denied",
		"these keys, from 64 goroutines / the same":                   "`Allow`, Zipf, 64 goroutines / sync.Map of x/time/rate",
		"100 000 keys by Zipf's law / a `sync.Map` of `rate.Limiter`": "`Allow`, Zipf, 1 goroutine / sync.Map of x/time/rate",
	} {
		_, rest, ok := strings.Cut(ratios, "| "+measured+" | ")
		if cells := strings.Split(rest, " | "); !ok || len(cells) < 2 {
			f.wrong("bench/RESULTS.md has no row %q", measured)
		} else {
			f.row("", row, strings.TrimSuffix(strings.TrimSpace(strings.Split(cells[1], "\n")[0]), " |"))
		}
	}
}

// choosing compares the tables of docs/choosing.md with the lab, and each C with its formula.
func (f *figures) choosing() {
	for _, table := range []struct {
		after, scenario string
		digits          int
		each            string
		rows            map[string]string
	}{
		{"A hundred processes, 1000 a second", "fleet100-over ×1.5", 2, "ops/admission", map[string]string{"`ModeAuto`": "auto", "`ModeStrict`": "strict", "`ModeDeferred`": "deferred"}},
		{"And ten processes, 10 000 a second", "fleet10-over ×1.5", 4, "ops/admission", map[string]string{"`ModeAuto`": "auto", "`ModeStrict`": "strict", "`ModeDeferred`": "deferred"}},
		{"Two thousand users", "fleet40-sparse ×1", 2, "ops/decision", map[string]string{"`ModeAuto`": "auto 0.05", "`ModeAuto`, `Overshoot: 0.5`": "auto 0.5", "`ModeStrict`": "strict", "`ModeDeferred`": "deferred"}},
	} {
		for name, kind := range table.rows {
			r := f.of(table.scenario, kind)
			part := f.in(r, "waits")
			waits := fmt.Sprintf("%.0f %%", 100*part)
			if part > 0 && part < 0.005 {
				waits = fmt.Sprintf("%.1f %%", 100*part)
			}
			excess := beyond(f.in(r, "exceedance/burst"), 0.001)
			if excess != "0" {
				excess += " of burst"
			}
			f.row(table.after, name, fmt.Sprintf("%.*f", table.digits, f.in(r, table.each)), waits, excess)
		}
	}
	f.ops()
	_, credits, _ := strings.Cut(f.page, "| Burst | N | C at 5 %")
	credits, _, _ = strings.Cut(credits, "\n\n")
	rows := regexp.MustCompile(`(?m)^\| ([\d ]+) \| (\d+) \| (\d+) \| (.*) \|$`).FindAllStringSubmatch(credits, -1)
	if len(rows) < 5 {
		f.wrong("%d rows of credits", len(rows))
	}
	for _, r := range rows {
		burst, err1 := strconv.ParseFloat(strings.ReplaceAll(r[1], " ", ""), 64)
		n, err2 := strconv.ParseFloat(r[2], 64)
		want := int64(0.05 * burst / max(n-1, 1))
		if err1 != nil || err2 != nil || r[3] != fmt.Sprint(want) || strings.HasPrefix(r[4], "waits") != (want == 0) {
			f.wrong("%s: C is %d", r[0], want)
		}
	}
}

// ops compares the sentences about the cost of an op in docs/choosing.md with bench/REDIS.md.
func (f *figures) ops() {
	row := func(ops string) []string {
		_, rest, ok := strings.Cut(read(f.t, "bench/REDIS.md"), "\n| "+ops+" | ")
		cells := strings.Split(rest, " | ")
		if !ok || len(cells) < 7 {
			f.t.Fatalf("bench/REDIS.md has no row of %s ops", ops)
		}
		return cells
	}
	full, eight, alone := row("**64**"), row("8"), row("1")
	want := fmt.Sprintf("An op costs Redis %s µs of one core in a full batch of 64, %s in a batch of 8, and %s alone. "+
		"It sends %s bytes to Redis and %s back in a full batch, and %s and %s alone.", full[0], eight[0], alone[0], full[5], full[6], alone[5], alone[6])
	if !strings.Contains(f.page, want) {
		f.wrong("docs/choosing.md must say: %s", want)
	}
}

// comparison compares the tables of docs/comparison.md with bench/RESULTS.md and bench/REDIS.md.
func (f *figures) comparison() {
	const by = ": go test -run TestFigures ./internal/test/docs -update -->"
	for _, table := range []struct{ marker, want string }{
		{"<!-- from bench/RESULTS.md" + by, speeds(f.t, read(f.t, "bench/RESULTS.md"))},
		{"<!-- from bench/REDIS.md" + by, costs(f.t, read(f.t, "bench/REDIS.md"))},
	} {
		was, now := between(f.t, f.page, table.marker, table.want)
		if !*update && was != strings.TrimSpace(table.want) {
			f.wrong("%s: the table has\n%s\nand the benchmark has\n%s", table.marker, was, table.want)
		}
		f.page = now
	}
}

// TestFiguresOfTheDocuments checks that the tables of the pages have the figures of the results
// files. After make lab, make bench or make bench-redis, -update writes them.
func TestFiguresOfTheDocuments(t *testing.T) {
	var lab struct{ Rows []labRow }
	if err := json.Unmarshal([]byte(read(t, "docs/lab/results.json")), &lab); err != nil {
		t.Fatal(err)
	}
	f := &figures{t: t, lab: lab.Rows}
	for page, compare := range map[string]func(){"README.md": f.headline, "docs/how-it-works.md": f.howItWorks, "docs/choosing.md": f.choosing, "docs/comparison.md": f.comparison} {
		f.page = read(t, page)
		before := f.page
		compare()
		for _, bad := range f.bad {
			t.Errorf("%s: %s", page, bad)
		}
		f.bad = nil
		if *update && f.page != before {
			if err := os.WriteFile(page, []byte(f.page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// rowsOf reads the first table after a text. It returns the first cell of each row, and
// the cells of each row by its first cell.
func rowsOf(t *testing.T, page, after string) (names []string, cells map[string][]string) {
	t.Helper()
	_, rest, ok := strings.Cut(page, after)
	if !ok {
		t.Fatalf("no %q", after)
	}
	cells = map[string][]string{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			if len(names) > 0 {
				break
			}
			continue
		}
		c := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range c {
			c[i] = strings.TrimSpace(c[i])
		}
		names = append(names, c[0])
		cells[c[0]] = c
	}
	return names, cells
}

// speeds makes the table of decision times from bench/RESULTS.md.
func speeds(t *testing.T, results string) string {
	t.Helper()
	loads := []struct{ title, short string }{
		{"One hot key, far below its limit", "one hot key"},
		{"Zipf over 100 000 keys", "Zipf, 100 000 keys"},
		{"Uniform over 1 000 000 keys", "uniform, a million"},
		{"Twenty times the limit: 95 % denied", "20 keys, 20 times over"},
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| limiter |")
	for _, l := range loads {
		fmt.Fprintf(&b, " %s |", l.short)
	}
	fmt.Fprintf(&b, " bytes a key |\n|---|%s--:|\n", strings.Repeat("--:|", len(loads)))
	names, _ := rowsOf(t, results, "## "+loads[0].title+"\n")
	_, memory := rowsOf(t, results, "## Memory\n")
	for _, name := range names {
		if name == "limiter" || name == "nothing" || name == "**hybrid AllowAll**" || name == "x/time/rate golang-lru" || strings.HasPrefix(name, "---") {
			continue
		}
		fmt.Fprintf(&b, "| %s |", name)
		for _, l := range loads {
			_, cells := rowsOf(t, results, "## "+l.title+"\n")
			cell := "–"
			if row := cells[name]; len(row) > 1 {
				cell, _, _ = strings.Cut(row[1], " ±")
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		bytes := "–"
		if row := memory[name]; len(row) > 1 {
			bytes = row[1]
		}
		fmt.Fprintf(&b, " %s |\n", bytes)
	}
	return b.String()
}

// costs makes the table of costs for Redis from bench/REDIS.md.
func costs(t *testing.T, redis string) string {
	t.Helper()
	_, section, ok := strings.Cut(redis, "## A decision\n")
	if !ok {
		t.Fatal("bench/REDIS.md has no section of decisions")
	}
	var b strings.Builder
	b.WriteString("| limiter | messages/decision | Redis CPU, µs a decision | errors |\n|---|--:|--:|--:|\n")
	rows := 0
	for line := range strings.Lines(section) {
		c := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(c) < 9 || strings.TrimSpace(c[1]) != "one hot key" {
			continue
		}
		for i := range c {
			c[i] = strings.TrimSpace(c[i])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c[0], c[3], c[5], c[8])
		rows++
	}
	if rows < 3 {
		t.Fatalf("%d rows of one hot key in bench/REDIS.md", rows)
	}
	return b.String()
}

// between returns the text between a marker and its end, and the page with that text
// replaced.
func between(t *testing.T, page, marker, with string) (was, now string) {
	t.Helper()
	begin := strings.Index(page, marker+"\n")
	if begin < 0 {
		t.Fatalf("docs/comparison.md has no %q", marker)
	}
	begin += len(marker) + 1
	length := strings.Index(page[begin:], "<!-- end -->")
	if length < 0 {
		t.Fatalf("%q has no end", marker)
	}
	return strings.Trim(page[begin:begin+length], "\n"), page[:begin] + "\n" + with + "\n" + page[begin+length:]
}

// TestFiguresAreRead checks rowsOf, between and row.
func TestFiguresAreRead(t *testing.T) {
	flagged := *update
	*update = false
	defer func() { *update = flagged }()
	const page = "## A\n\ntext\n\n| limiter | ns | x |\n|---|--:|--:|\n| **a** | 12 ± 3 % | 1 |\n\n| other | 9 |\n"
	names, cells := rowsOf(t, page, "## A\n")
	if strings.Join(names, ",") != "limiter,---,**a**" || cells["**a**"][1] != "12 ± 3 %" {
		t.Errorf("%q, %q", names, cells)
	}
	was, now := between(t, "a\n<!-- m -->\n\nold\n\n<!-- end -->\nb\n", "<!-- m -->", "new\n")
	if was != "old" || now != "a\n<!-- m -->\n\nnew\n\n<!-- end -->\nb\n" {
		t.Errorf("%q, %q", was, now)
	}
	f := &figures{t: t, page: "## A\n\n| x | 1 |\n\n## B\n\n| x | 2, 0 | 7 |\n| xy | 4 |\n"}
	f.row("## B", "x", "2, 0", "7")
	f.row("## A", "x", "1")
	if len(f.bad) > 0 {
		t.Errorf("%q", f.bad)
	}
	f.row("## B", "xy", "5")
	f.row("## C", "x", "1")
	if f.row("## B", "z", "1"); len(f.bad) != 3 {
		t.Errorf("three wrong rows: %q", f.bad)
	}
	*update = true
	f.row("## B", "x", "3", "8 %")
	if !strings.Contains(f.page, "\n| x | 3 | 8 % |\n| xy | 5 |") || !strings.Contains(f.page, "| x | 1 |") {
		t.Errorf("%q", f.page)
	}
}
