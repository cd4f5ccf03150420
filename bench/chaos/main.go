package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clients    = 3                       // of a row
	usualHold  = 1500 * time.Millisecond // of a fault
	mixes      = 5                       // rows of random mixes
	faultsEach = 3                       // faults in a mix
)

// options are the flags.
type options struct {
	only   string
	write  string
	record string
	soak   time.Duration
	seed   uint64
}

func main() {
	isWorker()
	var o options
	flag.StringVar(&o.only, "run", "", "run only the rows whose \"fault on topology, mode\" matches this `regexp`, or \"calls in flight: fault on topology\"")
	flag.StringVar(&o.write, "write", "", "write the page with the promises to this `file`")
	flag.StringVar(&o.record, "record", "", "write the page with all figures to this `file`")
	flag.DurationVar(&o.soak, "soak", 0, "run random faults one after the other for this long, instead of the table")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of mixes and of a soak; 0: a random seed")
	flag.Parse()
	redis.SetLogger(noLog{}) // failed dials are expected
	if err := o.main(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func (o options) main(ctx context.Context) error {
	if o.seed == 0 {
		o.seed = rand.Uint64()
		fmt.Println("seed", o.seed)
	}
	plans, err := o.plans()
	if err != nil {
		return err
	}
	rows := o.callsRows()
	if len(plans)+len(rows) == 0 {
		return fmt.Errorf("no row matches %q", o.only)
	}
	p := page{command: "make chaos", machine: machine()}
	var failed []error
	for _, plan := range plans {
		began := time.Now()
		out, err := run(ctx, plan)
		if err != nil {
			failed = append(failed, err)
			fmt.Println("FAILED:", err)
			continue
		}
		fmt.Print(out.progress(time.Since(began)))
		if len(out.verdict.violations) > 0 {
			failed = append(failed, fmt.Errorf("%s on %s: %d violations", plan.name(), plan.where(), len(out.verdict.violations)))
		}
		p.rows = append(p.rows, out)
	}
	calls, err := playAllCalls(ctx, rows)
	if err != nil {
		failed = append(failed, err)
	}
	p.calls = calls
	for file, text := range map[string]func() string{o.write: p.text, o.record: p.record} {
		if file != "" {
			if err := os.WriteFile(file, []byte(text()), 0o644); err != nil {
				return err
			}
		}
	}
	return errors.Join(failed...)
}

// plans returns the runs that the flags ask for.
func (o options) plans() (out []plan, err error) {
	match, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	usual := plan{load: usualLoad, clients: clients, hold: usualHold, seed: o.seed, strictly: true}
	if o.soak > 0 {
		p := usual
		p.topology, p.faults, p.load, p.clients, p.soak = topologySingle, mixable(), soakLoad, 4, o.soak
		return []plan{p}, nil
	}
	add := func(p plan) {
		if match.MatchString(p.name() + " on " + p.where()) {
			out = append(out, p)
		}
	}
	for _, f := range allFaults() {
		for _, on := range f.where() {
			for _, mode := range f.modes() {
				add(f.plan(usual, on, mode))
			}
		}
	}
	for i := range uint64(mixes) {
		add(mix(usual, o.seed+i))
	}
	return out, nil
}

// callsRows returns the rows of calls in flight that the flags ask for.
func (o options) callsRows() (out []callsRow) {
	if o.soak > 0 {
		return nil
	}
	match := regexp.MustCompile(o.only) // plans has compiled it
	for _, row := range callsRows {
		if match.MatchString(row.where()) {
			out = append(out, row)
		}
	}
	return out
}

// mix returns a plan of several random faults at once.
func mix(p plan, seed uint64) plan {
	all := mixable()
	p.topology, p.seed = topologySingle, seed
	for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(all))[:faultsEach] {
		p.faults = append(p.faults, all[i])
	}
	return p
}
