package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// plan describes the measurement.
type plan struct {
	rivals     []rivals.Rival
	workloads  []workload
	goroutines []int
	rounds     int
	slice      slice
	atOnce     bool // all workers may open their limiters at once, which makes the figures worse
}

// takesPart reports whether a rival can run a workload.
func takesPart(r rivals.Rival, w workload) bool {
	if r.Name == nothing.Name {
		return w.Name == hot
	}
	if w.Fresh {
		return r.Bounded
	}
	return w.single() || !r.Single
}

// measure lets all workers take turns at all workloads, and returns the figures in Go's benchmark format. In each round
// the workers of one workload follow each other in a random order, so that drift of the machine affects all alike. All
// rounds of a workload come before those of the next one, and workloads with many keys come last: a limiter pays the
// debts of a million keys to Redis for half a minute, and that would disturb the turns in between.
func (p plan) measure(ctx context.Context, workers []worker, log io.Writer) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "goos: %s\ngoarch: %s\npkg: github.com/hybridlimit/hybridlimit/bench/compare\ncpu: %s\n",
		runtime.GOOS, runtime.GOARCH, benchkit.CPU())
	start := time.Now()
	if err := p.openAll(workers, &out, log, start); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, w := range p.workloads {
		for range p.rounds {
			for _, g := range p.goroutines {
				for _, i := range rng.Perm(len(p.rivals)) {
					r := p.rivals[i]
					if !takesPart(r, w) {
						continue
					}
					if err := ctx.Err(); err != nil {
						return nil, err
					}
					answer, err := workers[i].do(request{Workload: w, Goroutines: g, Slice: p.slice.of(w)})
					if err != nil {
						return nil, fmt.Errorf("%s: %w", w.Name, err)
					}
					if err := answer.Figures.plausible(r, w); err != nil {
						return nil, fmt.Errorf("%s, %s, %d goroutines: %w", r.Name, w.Name, g, err)
					}
					out.WriteString(line(r.Name, w.Name, g, answer.Figures))
				}
			}
		}
		fmt.Fprintf(log, "%5.0f s  %s, %d rounds\n", time.Since(start).Seconds(), w.Name, p.rounds)
	}
	return out.Bytes(), nil
}

// plausible returns an error for figures that cannot be those of the workload.
func (f figures) plausible(r rivals.Rival, w workload) error {
	part := float64(f.Allowed) / float64(max(1, f.Calls))
	switch {
	case f.Calls < 1 || f.Took <= 0 || f.Max < f.P999 || f.P50 < 1:
		return fmt.Errorf("nothing was measured: %+v", f)
	case w.Limit == far && w.Over == 0 && part < 0.99 && !r.GivesUp:
		return fmt.Errorf("%.4f admitted, far below the limit", part)
	case w.Name == denied && f.Allowed > 2+f.Calls/20:
		return fmt.Errorf("%.4f admitted, far above the limit", part)
	}
	return nil
}

// openAll lets every worker open its limiters, which takes seconds for some.
// Workers do so one after the other, unless atOnce is set.
func (p plan) openAll(workers []worker, out, log io.Writer, start time.Time) error {
	var mu sync.Mutex // guards out and log
	open := func(i int) error {
		r := p.rivals[i]
		for _, w := range p.workloads {
			for _, g := range p.goroutines {
				if !takesPart(r, w) {
					break
				}
				answer, err := workers[i].do(request{Open: true, Workload: w, Goroutines: g, Slice: p.slice})
				if err != nil {
					return err
				}
				mu.Lock()
				if w.Over > 0 {
					fmt.Fprintf(log, "%5.0f s  %s, %s: %d goroutines, %v\n", time.Since(start).Seconds(), r.Name, w.Name, g, answer.Limit)
				}
				if w.Name == uniform && g == p.goroutines[0] && r.Where != rivals.InRedis {
					fmt.Fprintf(out, "BenchmarkKey/rival=%s %d %.1f B/key\n", r.Name, w.Keys, answer.PerKey)
				}
				mu.Unlock()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(log, "%5.0f s  %s is open\n", time.Since(start).Seconds(), r.Name)
		return nil
	}
	if p.atOnce {
		return benchkit.Spread(len(workers), open)
	}
	for i := range workers {
		if err := open(i); err != nil {
			return err
		}
	}
	return nil
}

// line formats a turn like go test -bench.
func line(rival, load string, goroutines int, f figures) string {
	n := float64(max(1, f.Calls))
	var b strings.Builder
	fmt.Fprintf(&b, "BenchmarkDecide/workload=%s/goroutines=%d/rival=%s-%d %d", load, goroutines, rival, runtime.GOMAXPROCS(0), f.Calls)
	fmt.Fprintf(&b, " %.4g ns/op %.4g cpu-ns/op %.3g B/op %.3g allocs/op", float64(f.Took)/n, float64(f.CPU)/n, float64(f.Bytes)/n, float64(f.Mallocs)/n)
	fmt.Fprintf(&b, " %d p50-ns %d p99-ns %d p99.9-ns %d max-ns", f.P50, f.P99, f.P999, f.Max)
	fmt.Fprintf(&b, " %.4g decisions/s %.4g denied/op", n/f.Took.Seconds(), 1-float64(f.Allowed)/n)
	if f.Meant >= 0 {
		fmt.Fprintf(&b, " %.5g in-memory/op", f.Meant)
	}
	b.WriteByte('\n')
	return b.String()
}
