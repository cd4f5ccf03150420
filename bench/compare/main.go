// Compare measures limiters side by side: the time and the memory of a decision,
// for every rival of package rivals, under the same loads in one run.
//
//	make bench                              all of it, into bench/RESULTS.md
//	cd bench && go run ./compare            prints the page instead
//	cd bench && go run ./compare -from results/rounds.txt -write .   writes the page of these rounds again
//	cd bench && go run ./compare -workloads hot -rivals 'hybrid|^x-time-rate$'
//
// Each rival runs in its own process, with its own redis-server if it needs one, so that the heap of one does not slow
// another. They take turns of a tenth of a second, round after round. A shared machine drifts by tens of percent over
// minutes. Within a round that affects all rivals alike. So the results are ratios of medians over rounds, not the
// nanoseconds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

func main() { benchkit.Main("compare", run) }

func run(ctx context.Context) error {
	p := plan{workloads: workloads, rivals: everyone, goroutines: levels()}
	flag.IntVar(&p.rounds, "rounds", 6, "number of rounds; a 95 % interval needs six")
	flag.DurationVar(&p.slice.Timed, "for", 60*time.Millisecond, "duration of the part of a turn that is timed as a whole")
	flag.DurationVar(&p.slice.Single, "single", 20*time.Millisecond, "duration of the part of a turn with single decisions timed")
	flag.DurationVar(&p.slice.Warm, "warm", 30*time.Millisecond, "duration of the warm-up of a turn")
	only := flag.String("rivals", "", "only rivals whose names match this regexp")
	loads := flag.String("workloads", "", "only workloads whose names match this regexp")
	dir := flag.String("write", "", "directory for RESULTS.md and results/; empty: print the page")
	from := flag.String("from", "", "file with rounds that were measured earlier; empty: measure")
	revision := flag.String("revision", "", "revision of the code, for the page")
	worker := flag.String("worker", "", "run as the worker of this rival, with requests on standard input")
	flag.Parse()
	if *worker != "" {
		return serve(ctx, *worker, os.Stdin, os.Stdout)
	}
	raw, err := os.ReadFile(*from)
	if *from == "" {
		raw, err = p.run(ctx, *only, *loads, *revision)
	}
	if err != nil {
		return err
	}
	page, err := newPage(raw)
	if err != nil {
		return err
	}
	if *dir == "" {
		fmt.Print(page.markdown())
		return nil
	}
	return page.write(*dir, raw)
}

// run measures, and returns the rounds.
func (p plan) run(ctx context.Context, names, loads, revision string) ([]byte, error) {
	if err := p.pick(names, loads); err != nil {
		return nil, err
	}
	workers, err := spawnAll(ctx, p.rivals)
	defer closeAll(workers)
	if err != nil {
		return nil, err
	}
	raw, err := p.measure(ctx, workers, os.Stderr)
	return append([]byte(thisOrigin(revision, p.slice).String()), raw...), err
}

// pick keeps only the rivals and workloads that match.
func (p *plan) pick(names, loads string) error {
	name, err := regexp.Compile(names)
	if err != nil {
		return fmt.Errorf("-rivals: %w", err)
	}
	load, err := regexp.Compile(loads)
	if err != nil {
		return fmt.Errorf("-workloads: %w", err)
	}
	p.rivals = slices.DeleteFunc(slices.Clone(p.rivals), func(r rivals.Rival) bool { return !name.MatchString(r.Name) })
	p.workloads = slices.DeleteFunc(slices.Clone(p.workloads), func(w workload) bool { return !load.MatchString(w.Name) })
	return nil
}

// write writes the page, its figures and the rounds.
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
