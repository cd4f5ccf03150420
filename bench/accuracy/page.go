package accuracy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// The files of the results, from the root of the repository.
const (
	RatesFile = "docs/lab/results.json"
	CallsFile = "docs/lab/calls.json"
	// RegionsFile has the results of regions.
	RegionsFile = "docs/lab/regions.json"
	HotFile     = "docs/lab/hot.json"
)

// quotes are the parts of pages that have figures of the results, by file. Each stands between two
// lines with the command.
var quotes = []struct {
	file, command string
	text          func(results) string
}{
	{"docs/lab/README.md", "make lab", overview},
	{"docs/protocol.md", "make lab", fleets},
	{"docs/lab/README.md", "make lab-regions", apart},
	{"docs/lab/README.md", "make lab-hot", hot},
}

// results has the result of each lab.
type results struct{ rates, calls, regions, hot *Result }

// Quote writes the results into the pages under the root of the repository. It returns the pages that
// had other figures. If write is false, it only compares.
func Quote(root string, write bool) (stale []string, err error) {
	var all results
	for file, to := range map[string]**Result{
		RatesFile: &all.rates, CallsFile: &all.calls, RegionsFile: &all.regions, HotFile: &all.hot,
	} {
		if *to, err = ReadResult(filepath.Join(root, file)); err != nil {
			return nil, err
		}
	}
	for _, q := range quotes {
		file := filepath.Join(root, q.file)
		page, err := os.ReadFile(file)
		if err != nil {
			return stale, err
		}
		from, to := fmt.Sprintf("<!-- %s: from here -->\n", q.command), fmt.Sprintf("<!-- %s: to here -->\n", q.command)
		now, err := benchkit.Between(string(page), from, to, q.text(all))
		if err != nil {
			return stale, fmt.Errorf("%s: %w", q.file, err)
		}
		if now == string(page) {
			continue
		}
		stale = append(stale, q.file)
		if write {
			if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
				return stale, err
			}
		}
	}
	return stale, nil
}

// table writes a table. Columns whose heads end with ":" are words, and the others are figures.
func table(heads string, rows [][]string) string {
	var b strings.Builder
	var names, lines []string
	for head := range strings.SplitSeq(heads, "|") {
		name, words := strings.CutSuffix(head, ":")
		names, lines = append(names, name), append(lines, "--:")
		if words {
			lines[len(lines)-1] = "---"
		}
	}
	fmt.Fprintf(&b, "| %s |\n|%s|\n", strings.Join(names, " | "), strings.Join(lines, "|"))
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// fleets has the fleets of ModeAuto at one and a half times the limit.
func fleets(all results) string {
	var rows [][]string
	for _, row := range all.rates.Rows {
		name, load, _ := strings.Cut(row.Scenario, " ")
		if strings.HasPrefix(name, "fleet") && load == "×1.5" && row.is("auto") {
			rows = append(rows, []string{
				name, fixed(row.of("utilisation"), 4), percent(row.of("exceedance/burst")), significant(row.of("ops/admission")),
				percent(row.of("waits")),
			})
		}
	}
	return table("fleet:|utilisation|exceedance|ops per admission|waits", rows)
}

// is reports whether the row is of a kind, with the default of the overshoot.
func (r Row) is(kind string) bool { return r.Kind == kind || r.Kind == kind+" 0.05" }

// row returns the row of a kind, or an empty one.
func (r *Result) row(scenario, kind string) Row {
	for _, row := range r.Rows {
		if row.Scenario == scenario && row.is(kind) {
			return row
		}
	}
	return Row{}
}

// callsOf reads a name such as "10x1000-50ms ×0.5" or "keys500x1-5s ×0.95".
func callsOf(scenario string) (fleet, call, load string) {
	name, load, _ := strings.Cut(scenario, " ×")
	size, length, _ := strings.Cut(name, "-")
	of, limit, _ := strings.Cut(size, "x")
	if keys, many := strings.CutPrefix(of, "keys"); many {
		of = keys + " keys"
	}
	d, _ := time.ParseDuration(length)
	return of + " × " + limit, number(d.Seconds()) + " s", load
}

// none stands for a missing figure.
const none = "–"

func fixed(x Figure, places int) string { return number(benchkit.Round(float64(x), places)) }

func percent(x Figure) string {
	if !x.known() {
		return none
	}
	return fixed(100*x, 2) + " %"
}

// significant formats x with three significant digits, without an exponent.
func significant(x Figure) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', 3, 64), 64)
	return number(rounded)
}

// messages formats the messages of a call.
func messages(x Figure) string {
	if x < 1 {
		return significant(x)
	}
	return fixed(x, 3)
}

// promises are the bounds of the overview, and the rows that could break them.
var promises = []struct {
	what, bound, figure string
	kinds               []string
	least               bool // the worst is the least
}{
	{"`ModeStrict`: above the limit", "0 % of burst", "exceedance/burst", []string{"strict"}, false},
	{"`ModeAuto`: above the limit", "5 % of burst", "exceedance/burst", []string{"auto"}, false},
	{"`ModeAuto`, `Overshoot: 0.5`: above the limit", "50 % of burst", "exceedance/burst", []string{"auto 0.5"}, false},
	{"`ModeDeferred`: above the limit", none, "exceedance/burst", []string{"deferred"}, false},
	{"count-and-push: above the limit", none, "exceedance/burst", []string{"count-and-push"}, false},
	{"`ModeAuto`, `ModeStrict`: utilisation", none, "utilisation", []string{"auto", "strict"}, true},
	{"calls in flight: most at once, of the limit", "100 %", "at-once", []string{"engine", "limiter"}, false},
}

// compared has the scenarios of the overview in which limiters stand side by side.
var compared = []string{
	"fleet100-half ×0.5", "fleet100-over ×1.5", "fleet100-over ×10", "fleet20-1000-onoff ×3", "fleet40-sparse ×1",
	"fleet10-over ×1.5", "fixed100 ×1.5", "sliding10 ×1.5", "queue10 ×1.5", "log10 ×1.5",
}

// flown has the fleets and calls of the overview, of calls in flight.
var flown = []string{
	"10x1000-50ms", "10x1000-30s", "100x1000-50ms", "100x1000-30s", "20x60-50ms", "40x20-50ms", "40x20-30s",
	"keys500x1-50ms", "keys500x1-30s",
}

// overview has the tables of docs/lab/README.md.
func overview(all results) string {
	rates, calls := all.rates, all.calls
	var promised, beside, flying [][]string
	for _, p := range promises {
		var worst Row
		for _, row := range append(rates.Rows[:len(rates.Rows):len(rates.Rows)], calls.Rows...) {
			x, was := row.of(p.figure), worst.of(p.figure)
			if slices.ContainsFunc(p.kinds, row.is) && x.known() && (!was.known() || x != was && (x < was) == p.least) {
				worst = row
			}
		}
		if worst.of(p.figure) == 0 {
			worst.Scenario = none
		}
		promised = append(promised, []string{p.what, p.bound, percent(worst.of(p.figure)), worst.Scenario})
	}
	for _, scenario := range compared {
		line := []string{scenario}
		for _, kind := range []string{"auto", "deferred", "count-and-push"} {
			line = append(line, percent(rates.row(scenario, kind).of("exceedance/burst")))
		}
		for _, kind := range []string{"auto", "strict", "deferred", "count-and-push"} {
			line = append(line, significant(rates.row(scenario, kind).of("ops/decision")))
		}
		beside = append(beside, append(line, percent(rates.row(scenario, "auto").of("waits"))))
	}
	for _, name := range flown {
		fleet, call, _ := callsOf(name)
		row, set := calls.row(name+" ×0.95", "engine"), calls.row(name+" ×0.95", "sorted-set")
		flying = append(flying, []string{
			fleet, call, messages(row.of("messages/admission")), messages(set.of("messages/admission")),
			messages(set.of("bare/admission")), percent(row.of("share")), percent(set.of("share")), percent(row.of("waits")),
		})
	}
	return fmt.Sprintf(`%s
%s

### Promise and worst case

%s
### Beside other limiters

%s
### Calls in flight, at a load of 0.95

%s`, rates.head(), calls.head(), table("promise:|bound|worst of all rows|in:", promised),
		table("scenario:|above the limit, of burst: auto|deferred|count-and-push|"+
			"ops per decision: auto|strict|deferred|count-and-push|waits: auto", beside),
		table("fleet:|call|messages per admitted call: engine|sorted set|the same without renewals|"+
			"share: engine|sorted set|waits: engine", flying))
}

// apart has the regions beside one Redis for all and static shares.
func apart(all results) string {
	var rows [][]string
	r := all.regions
	for _, row := range r.Rows {
		if row.Kind != string(fleet.Regions) {
			continue
		}
		one, static := r.row(row.Scenario, string(fleet.OneRedis)), r.row(row.Scenario, string(fleet.StaticShares))
		rows = append(rows, []string{
			row.Scenario, percent(row.of("share")), percent(static.of("share")), percent(one.of("share")),
			percent(row.of("exceedance/burst")), significant(row.of("away/s")), significant(one.of("away/s")), percent(row.of("waits")), percent(one.of("waits")),
		})
	}
	return r.head() + "\n\n" + table("scenario:|share: regions|static shares|one Redis|above the limit, of burst: regions|"+
		"messages a second between two regions: regions|one Redis|waits: regions|one Redis", rows)
}

// hot has the kinds of a hot key side by side.
func hot(all results) string {
	var rows [][]string
	r := all.hot
	for _, row := range r.Rows {
		if row.Kind != string(fleet.Leases) {
			continue
		}
		of := func(kind fleet.Kind, figure string) Figure { return r.row(row.Scenario, string(kind)).of(figure) }
		line := []string{row.Scenario}
		for _, kind := range []fleet.Kind{fleet.Leases, fleet.ShortLeases, fleet.DropRatio, fleet.RateLeases} {
			line = append(line, significant(of(kind, "ops/process/s")))
		}
		for _, kind := range []fleet.Kind{fleet.Leases, fleet.DropRatio, fleet.DropRatioCapped, fleet.RateLeases} {
			line = append(line, percent(of(kind, "exceedance/burst")))
		}
		for _, kind := range []fleet.Kind{fleet.Leases, fleet.DropRatio, fleet.RateLeases} {
			line = append(line, fixed(of(kind, "share"), 2))
		}
		rows = append(rows, append(line, fixed(row.of("low"), 2)+" to "+fixed(row.of("high"), 2), percent(row.of("without")), percent(row.of("largest-part"))))
	}
	return r.head() + "\n\n" + table("scenario:|ops a process and second: leases|short leases|drop ratio|rate leases|"+
		"above the limit, of burst: leases|drop ratio|capped|rate leases|share: leases|drop ratio|rate leases|"+
		"seconds of leases, of the rate|leases without Redis|ops of the busiest part", rows)
}

// head tells the origin of the results, and whether the musts hold.
func (r *Result) head() string {
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		versions = append(versions, name+" "+r.Versions[name])
	}
	return fmt.Sprintf("- `%s`: %d rows, in which %d musts do not hold; %s",
		r.Command, len(r.Rows), r.Failed(), strings.Join(versions, ", "))
}
