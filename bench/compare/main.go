// Compare measures limiters side by side: what a decision takes in time and
// memory, by every rival of package rivals, under the same loads in one run.
//
//	make bench                              all of it, into bench/RESULTS.md
//	cd bench && go run ./compare            prints the page instead
//	cd bench && go run ./compare -workloads hot -rivals 'hybrid|^x-time-rate$'
//
// Each rival runs in a process of its own, with a redis-server of its own if it
// needs one, so that nobody pays for another's heap; they take turns, a tenth of
// a second each, round after round. A machine that is shared drifts by tens
// of percent over minutes: within a round that hits all alike, so what counts
// are ratios of medians over rounds, not the nanoseconds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/rivals"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	p := plan{workloads: workloads, rivals: append([]rivals.Rival{nothing}, rivals.All...), goroutines: levels()}
	flag.IntVar(&p.rounds, "rounds", 6, "of all that is measured; an interval needs six")
	flag.DurationVar(&p.slice.Timed, "for", 60*time.Millisecond, "one turn takes, timed as a whole")
	flag.DurationVar(&p.slice.Single, "single", 20*time.Millisecond, "and then, each decision timed by itself")
	flag.DurationVar(&p.slice.Warm, "warm", 30*time.Millisecond, "before that, unmeasured")
	only := flag.String("rivals", "", "only those whose names match")
	loads := flag.String("workloads", "", "only those whose names match")
	dir := flag.String("write", "", "directory for RESULTS.md and results/; empty: print the page")
	revision := flag.String("revision", "", "of the code, for the page")
	worker := flag.String("worker", "", "be the process of this rival, and do what the standard input says")
	flag.Parse()
	if *worker != "" {
		return serve(ctx, *worker, os.Stdin, os.Stdout)
	}
	if err := p.pick(*only, *loads); err != nil {
		return err
	}
	workers, err := spawnAll(ctx, p.rivals)
	defer closeAll(workers)
	if err != nil {
		return err
	}
	raw, err := p.measure(ctx, workers, os.Stderr)
	if err != nil {
		return err
	}
	results, err := parse(raw)
	if err != nil {
		return err
	}
	page := page{results: results, plan: p, machine: thisMachine(*revision)}
	if *dir == "" {
		fmt.Print(page.markdown())
		return nil
	}
	return page.write(*dir, raw)
}

// pick leaves what was asked for.
func (p *plan) pick(names, loads string) error {
	name, err := regexp.Compile(names)
	if err != nil {
		return fmt.Errorf("-rivals: %w", err)
	}
	load, err := regexp.Compile(loads)
	if err != nil {
		return fmt.Errorf("-workloads: %w", err)
	}
	var rs []rivals.Rival
	for _, r := range p.rivals {
		if name.MatchString(r.Name) {
			rs = append(rs, r)
		}
	}
	var ws []workload
	for _, w := range p.workloads {
		if load.MatchString(w.Name) {
			ws = append(ws, w)
		}
	}
	p.rivals, p.workloads = rs, ws
	return nil
}

// write puts down the page, its figures and what they are made of.
func (p page) write(dir string, raw []byte) error {
	out := filepath.Join(dir, resultsDir)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join(dir, "RESULTS.md"): []byte(p.markdown()),
		filepath.Join(out, "rounds.txt"): raw,
	}
	for name, svg := range p.figures() {
		files[filepath.Join(out, name)] = svg
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// resultsDir is beside the page.
const resultsDir = "results"
