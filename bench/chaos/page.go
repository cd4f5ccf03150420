package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// outcome is a finished run.
type outcome struct {
	plan    plan
	verdict *verdict
}

// page has the finished runs. docs/reliability.md and bench/chaos.json show them.
type page struct {
	command string
	machine string
	rows    []*outcome // of rates
	calls   []*outcome // with calls in flight
	regions []*outcome // with regions
}

// machine returns a sentence about the machine and the versions.
func machine() string {
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, redis-server %s; go-redis %s.",
		benchkit.CPU(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), benchkit.RedisServer(),
		benchkit.Modules()["github.com/redis/go-redis/v9"])
}

//go:embed reliability.md.tmpl
var reliability string

// text returns docs/reliability.md, with the row that came closest to the bound of each promise.
func (p *page) text() string {
	var decisions, wrong int64
	var slowest, back, free, paused time.Duration
	var exact, mostFallback int
	var critical float64 // the largest part that was denied
	type part struct {
		Title string
		Rows  []string
	}
	var parts []part
	titles := map[string]string{topologySingle: "One server", topologySentinel: "Sentinel", topologyCluster: "Cluster"}
	for _, on := range []string{topologySingle, topologySentinel, topologyCluster} {
		one := part{Title: titles[on]}
		for _, o := range p.rows {
			if o.plan.topology == on {
				v := o.verdict
				one.Rows = append(one.Rows, fmt.Sprintf("| %s | %.1f | %s | %s | %.1f |\n",
					o.label(), ms(v.Slowest), v.Shared, v.Alone, v.Recovered.Seconds()))
			}
		}
		if len(one.Rows) > 0 {
			parts = append(parts, one)
		}
	}
	for _, o := range p.rows {
		v := o.verdict
		decisions, wrong = decisions+v.Decisions, wrong+v.Errors
		paused = max(paused, v.Paused)
		slowest, back = max(slowest, v.Slowest), max(back, v.Recovered)
		if v.Accounting == "to the unit" {
			exact++
		}
		if r := v.Reserve; r.calls > 0 {
			critical = max(critical, float64(r.calls-r.admitted)/float64(r.calls))
		}
	}
	var calls, broken []string
	for _, o := range p.calls {
		v := o.verdict
		mostFallback, free = max(mostFallback, v.MostFallback), max(free, v.Free)
		calls = append(calls, fmt.Sprintf("| %s | %d/%s | %.1f |\n", o.label(), v.Most, v.bound(), v.Back.Seconds()))
	}
	var regions []string
	for _, o := range p.regions {
		v := o.verdict
		regions = append(regions, fmt.Sprintf("| %s | %s | %s | %.2f | %.2f | %d |\n",
			o.label(), v.Excess, v.Apart, v.Calm, v.After, v.Between))
	}
	for _, o := range slices.Concat(p.rows, p.calls, p.regions) {
		for _, x := range o.verdict.Broken {
			text := strings.ReplaceAll(x.text, "\n", " ")
			broken = append(broken, fmt.Sprintf("%s: %s: %s", o.plan.title(), x.kind, text))
		}
	}
	if err := p.checkOpen(); err != nil {
		broken = append(broken, err.Error())
	}
	decimal := func(x float64) string { return fmt.Sprintf("%.1f", x) }
	var b strings.Builder
	err := template.Must(template.New("").Parse(reliability)).Execute(&b, map[string]any{
		"Command": p.command, "Machine": p.machine, "Parts": parts, "Calls": calls, "Regions": regions, "Broken": broken,
		"Decisions": benchkit.Thousands(decisions, ","), "Wrong": wrong,
		"Slowest": decimal(ms(slowest)), "Slack": slack.Milliseconds(), "Decides": decides.idle.Milliseconds(),
		"Open": decimal(1000 * ms(p.openTimes().p99())), "OpenP99": openP99.Microseconds(),
		"Paused": decimal(paused.Seconds()), "PausedWithin": decimal(pausedWithin.idle.Seconds()),
		"Back": decimal(back.Seconds()), "Recovery": recovery.Seconds(),
		"Critical": decimal(100 * (1 - critical)), "MostCritical": 100 * mostCritical,
		"Exact": exact, "Rows": len(p.rows), "RegionsUse": regionsUse,
		"MostFallback": mostFallback, "Share": callsShare,
		"Free": decimal(free.Seconds()), "CallsFree": callsFree.idle.Seconds(), "CallsBack": callsBack.idle.Seconds(),
	})
	if err != nil {
		panic(err) // the template does not fit the data
	}
	return b.String()
}

// openTimes returns those of decisions while a breaker was open, of all runs.
func (p *page) openTimes() *openTimes {
	all := new(openTimes)
	for _, o := range p.rows {
		all.took, all.beside = append(all.took, o.verdict.open.took...), append(all.beside, o.verdict.open.beside...)
	}
	all.sort()
	return all
}

// checkOpen checks the promise about the decisions while a breaker is open. All runs together have enough of them.
func (p *page) checkOpen() error {
	all := p.openTimes()
	if most := all.p99(); len(all.took) >= 1000 && most > openP99 {
		return fmt.Errorf("all rows: %s: of %d decisions, one in a hundred took %v or more", brokeOpen, len(all.took), most)
	}
	return nil
}

// label returns the name of the row in docs/reliability.md.
func (o *outcome) label() string {
	name := o.plan.name()
	if o.plan.mode == hybrid.ModeStrict {
		name += ", *strict*"
	}
	if o.plan.inFlight && o.plan.topology != topologySingle {
		name += ", " + o.plan.topology
	}
	if len(o.verdict.Broken) > 0 {
		name += " **✗**"
	}
	return name
}

// ms converts d to milliseconds.
func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// String returns the row of bench/chaos.json.
func (o *outcome) String() string {
	text, err := json.Marshal(struct {
		Fault, Topology, Mode string
		*verdict
	}{o.plan.name(), o.plan.topology, o.plan.mode.String(), o.verdict})
	return cmp.Or(string(text), fmt.Sprint(err))
}

// record returns bench/chaos.json: every figure of the runs.
func (p *page) record() string {
	lines := func(rows []*outcome) string {
		var out []string
		for _, o := range rows {
			out = append(out, o.String())
		}
		return strings.Join(out, ",\n")
	}
	return fmt.Sprintf("{\"PrintedBy\": %q, \"Machine\": %q, \"Rates\": [\n%s\n], \"Calls\": [\n%s\n], \"Regions\": [\n%s\n]}\n",
		p.command, p.machine, lines(p.rows), lines(p.calls), lines(p.regions))
}
