// Quickstart shows one limit that four processes share through a Redis, which is
// killed and comes back empty. It needs only Go.
//
//	go run ./examples/quickstart
//
// The program starts itself again for each process: miniredis (a Redis written in Go) and four workers. The run has
// three phases of five seconds: with Redis, without it, and with a new, empty one. At the end it prints a picture, and
// the largest excess of the fleet over the limit in each phase. The exit status is 1 if an excess is above its bound.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

const (
	processes = 4
	rate      = 500      // units a second, for all processes together
	burst     = 500      // units
	load      = 5 * rate // calls a second, by all processes together
	credit    = 8        // units that a process may admit before Redis knows: 5 % of the burst / 3
)

// newLimiter is all that an application needs of the library. Each process makes the same limiter.
func newLimiter(rdb redis.UniversalClient, log *slog.Logger) (*hybrid.Limiter, error) {
	return hybrid.New(rdb, hybridlimit.TokenBucket(rate, time.Second, burst), hybrid.Config{
		Name: "requests",
		Hub:  hybrid.HubConfig{FleetSize: processes, Logger: log},
	})
}

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "redis":
		err = serveRedis(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "worker":
		err = work(os.Args[2], os.Args[3])
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = demonstrate(ctx, os.Stdout, 5*time.Second)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// demonstrate plays three phases. It returns an error if a bound was broken.
func demonstrate(ctx context.Context, out io.Writer, phase time.Duration) error {
	fmt.Fprintf(out, "%d processes share a limit of %d/s with a burst of %d. The load is %d/s. Redis is killed\n"+
		"after %v and comes back empty after %v. Process 1 logs:\n\n", processes, rate, burst, load, phase, 2*phase)
	r, err := play(ctx, phase)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nUnits admitted a second:\n\n%s\n", r.picture())
	fmt.Fprintf(out, "Worst excess beyond burst + rate × t, over all intervals of t seconds:\n\n%30s  excess  at most\n", "admitted")
	for _, v := range r.judge() {
		fmt.Fprintf(out, "  %-20s%8d%8.1f%9.0f  %s\n", v.phase, v.units, v.excess, v.bound, cmp.Or(v.problem, "✓"))
		if v.problem != "" {
			err = errors.New("FAIL")
		}
	}
	return err
}

// decision is the answer to one call.
type decision struct {
	Process int           // from 1
	At      time.Duration // since the begin; the time at which the call returned
	Alone   bool          // decided without Redis
	Units   int64         // admitted
}

// run has the decisions of one run.
type run struct {
	phase, killed, restarted time.Duration // the last two since the begin
	decisions                []decision    // of all processes, in order
}

type verdict struct {
	phase         string
	units         int64   // admitted
	excess, bound float64 // units beyond burst + rate·t
	problem       string
}

// judge compares the run with the guarantee. With Redis, the excess is at most the credit of all processes but one. An
// empty Redis gives no new quota, so intervals that end in the last phase may begin in the first. Without Redis each
// process has its share of the limit, so there is no excess. One call of each process may have been decided before the
// interval in which it returned.
func (r *run) judge() []verdict {
	const late, end = processes, time.Hour
	return []verdict{
		r.measure("with Redis", false, 0, r.restarted, credit*(processes-1)+late),
		r.measure("without Redis", true, r.killed, end, late),
		r.measure("Redis back, empty", false, r.restarted, end, credit*(processes-1)+late),
	}
}

// measure finds the excess over all intervals that end in a phase. A bucket that may go into debt shows it: its deepest
// debt is the largest number of units beyond burst + rate·t.
func (r *run) measure(phase string, alone bool, from, to time.Duration, bound float64) verdict {
	v := verdict{phase: phase, bound: bound}
	level, last, seen := float64(burst), time.Duration(0), map[int]bool{}
	for _, d := range r.decisions {
		if d.Alone != alone {
			continue
		}
		level, last = min(level+rate*(d.At-last).Seconds(), burst)-float64(d.Units), d.At
		if from <= d.At && d.At < to {
			v.units, v.excess, seen[d.Process] = v.units+d.Units, max(v.excess, -level), true
		}
	}
	switch {
	case v.excess > v.bound:
		v.problem = "✗ above the bound"
	case len(seen) < processes:
		v.problem = fmt.Sprintf("✗ %d processes decided nothing", processes-len(seen))
	}
	return v
}

// picture draws the admitted units as bars. A row is a quarter of the rate. Bars end at twice the rate.
func (r *run) picture() string {
	const columns, rows = 60, 8
	column := 3 * r.phase / columns
	var units [columns]float64
	for _, d := range r.decisions {
		units[min(d.At/column, columns-1)] += float64(d.Units)
	}
	var b strings.Builder
	for row := rows; row > 0; row-- {
		fmt.Fprintf(&b, "%7s ┤", map[int]string{rows: fmt.Sprint(2 * rate), rows / 2: fmt.Sprint(rate)}[row])
		for _, n := range units {
			eighths := int(n / column.Seconds() / rate * 8 * rows / 2)
			b.WriteRune([]rune(" ▁▂▃▄▅▆▇█")[max(0, min(eighths-8*(row-1), 8))])
		}
		b.WriteByte('\n')
	}
	return b.String() + strings.Replace("  Redis  |╳ killed            |\n", "|", strings.Repeat("━", columns/3), 2)
}

// child is another process of this program. Both sides speak JSON.
type child struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

// play starts all processes, kills Redis, starts it again and collects the
// workers' reports. No child is left when it returns.
func play(ctx context.Context, phase time.Duration) (*run, error) {
	ctx, stop := context.WithTimeout(ctx, 3*phase+30*time.Second)
	defer stop()
	ctx, fail := context.WithCancelCause(ctx) // the first failure ends all children
	var children []*child
	defer func() {
		fail(nil)
		for _, c := range children {
			_ = c.cmd.Wait()
		}
	}()
	start := func(args ...string) *child {
		cmd := exec.CommandContext(ctx, os.Args[0], args...)
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		c := &child{cmd, json.NewEncoder(in), json.NewDecoder(out)}
		if err := cmp.Or(err1, err2, cmd.Start()); err != nil {
			fail(err)
		}
		children = append(children, c)
		return c
	}
	hear := func(c *child, v any) {
		if err := cmp.Or(ctx.Err(), c.out.Decode(v)); err != nil {
			fail(fmt.Errorf("%s: %w", c.cmd.Args[1:], err))
		}
	}
	sleep := func(until time.Time) {
		select {
		case <-time.After(time.Until(until)):
		case <-ctx.Done():
		}
	}

	// The system gives ports from 32768 on to outgoing connections. One of these
	// could take the address while Redis is dead.
	addr := fmt.Sprint("127.0.0.1:", 20000+rand.IntN(12000))
	server := start("redis", addr)
	hear(server, new(bool)) // it listens
	var workers []*child
	for p := range processes {
		workers = append(workers, start("worker", addr, fmt.Sprint(p+1)))
	}
	for _, w := range workers {
		hear(w, new(bool)) // it has counted the others
	}
	begin := time.Now().Add(100 * time.Millisecond)
	for _, w := range workers {
		_ = w.in.Encode([2]time.Time{begin, begin.Add(3 * phase)}) // a dead worker is noticed below
	}
	sleep(begin.Add(phase))
	r := &run{phase: phase, killed: time.Since(begin)}
	_ = server.cmd.Process.Kill()
	sleep(begin.Add(2 * phase))
	r.restarted = time.Since(begin)
	hear(start("redis", addr), new(bool))
	for _, w := range workers {
		var report []decision
		hear(w, &report)
		r.decisions = append(r.decisions, report...)
	}
	slices.SortFunc(r.decisions, func(a, b decision) int { return cmp.Compare(a.At, b.At) })
	return r, context.Cause(ctx)
}

// serveRedis is a child process. It ends when its parent does.
func serveRedis(addr string) error {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(addr); err != nil {
		return err
	}
	m.ClockTTL(true) // keys expire as time passes
	fmt.Println(true)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// work is a child process. It makes its part of the calls and reports its decisions. Denials from memory are left out.
func work(addr, process string) error {
	spans := make(chan [2]time.Time, 1)
	go func() {
		span, in := [2]time.Time{}, json.NewDecoder(os.Stdin)
		for in.Decode(&span) == nil {
			spans <- span
		}
		os.Exit(1) // the parent has ended
	}()
	logging.Disable() // go-redis logs each connection that fails
	number, err := strconv.Atoi(process)
	log := slog.New(slog.DiscardHandler)
	if number == 1 {
		log = slog.Default()
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	limiter, err1 := newLimiter(rdb, log)
	if err := cmp.Or(err, err1); err != nil {
		return err
	}
	defer limiter.Close()
	for limiter.Stats().Fleet < processes || limiter.Ready(context.Background()) != nil {
		time.Sleep(50 * time.Millisecond) // so that all begin together; an application need not wait
	}
	fmt.Println(true)
	report, err := call(limiter, number, <-spans)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

// call makes a process's part of the calls from the begin to the end of a span.
func call(limiter *hybrid.Limiter, number int, span [2]time.Time) ([]decision, error) {
	report, begin := []decision{}, time.Now()
	begin = begin.Add(span[0].Sub(begin)) // keeps the monotonic clock
	for due := begin; time.Now().Before(span[1]); due = due.Add(time.Second * processes / load) {
		time.Sleep(time.Until(due))
		res, err := limiter.Allow(context.Background(), "user:7")
		if err != nil {
			return nil, err
		}
		if res.Source != hybridlimit.SourceDenyCache {
			report = append(report, decision{number, time.Since(begin), res.Source == hybridlimit.SourceFallback, res.Granted})
		}
	}
	return report, nil
}
