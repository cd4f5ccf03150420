package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const (
	clients    = 3                       // of a row
	usualHold  = 1500 * time.Millisecond // of a fault
	mixes      = 5                       // rows of random mixes
	faultsEach = 3                       // faults in a mix

	// callsAtOnce is the number of rows with calls in flight that are played at once. Such a row leaves a processor
	// idle for most of the time.
	callsAtOnce = 4
	// regionsAtOnce is the same of rows of regions.
	regionsAtOnce = 2
)

var (
	only = flag.String("run", "", "run only the rows whose \"fault on topology, mode\" matches this `regexp`, "+
		"or \"calls in flight: fault on topology\", or \"regions: fault\"")
	writeTo  = flag.String("write", "", "write the page with the promises to this `file`")
	recordTo = flag.String("record", "", "write all figures to this `file`, in JSON")
	soak     = flag.Duration("soak", 0, "run random faults one after the other for this long, instead of the table")
	seed     = flag.Uint64("seed", 1, "seed of mixes and of a soak; 0: a random seed")
)

func main() {
	isWorker()
	flag.Parse()
	redis.SetLogger(&logging.VoidLogger{}) // failed dials are expected
	if err := playRows(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// playRows plays the rows that the flags ask for, and writes the files.
func playRows(ctx context.Context) error {
	if *seed == 0 {
		*seed = rand.Uint64()
		fmt.Println("seed", *seed)
	}
	rates, calls, regions, err := plans()
	if err != nil {
		return err
	}
	if len(rates)+len(calls)+len(regions) == 0 {
		return fmt.Errorf("no row matches %q", *only)
	}
	p := page{command: "make chaos", machine: machine()}
	failed := make([]error, 3)
	p.rows, failed[0] = playAll(ctx, rates, 1)
	p.calls, failed[1] = playAll(ctx, calls, callsAtOnce)
	p.regions, failed[2] = playAll(ctx, regions, regionsAtOnce)
	failed = append(failed, p.checkOpen())
	for file, text := range map[string]func() string{*writeTo: p.text, *recordTo: p.record} {
		if file != "" {
			failed = append(failed, os.WriteFile(file, []byte(text()), 0o644))
		}
	}
	return errors.Join(failed...)
}

// playAll plays so many plans at once, prints their rows, and returns the outcomes in the order of the plans.
func playAll(ctx context.Context, plans []plan, atOnce int) ([]*outcome, error) {
	out, errs := make([]*outcome, len(plans)), make([]error, len(plans))
	var (
		players sync.WaitGroup
		screen  sync.Mutex
		free    = make(chan struct{}, atOnce)
	)
	for i, p := range plans {
		free <- struct{}{}
		players.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			v, err := run(ctx, p)
			screen.Lock()
			defer screen.Unlock()
			if errs[i] = err; err != nil {
				fmt.Println("FAILED:", err)
				return
			}
			out[i] = &outcome{p, v}
			fmt.Printf("%5.1f s  %v\n", time.Since(began).Seconds(), out[i])
			if n := len(v.Broken); n > 0 {
				errs[i] = fmt.Errorf("%s: %d violations", p.title(), n)
			}
		})
	}
	players.Wait()
	return slices.DeleteFunc(out, func(o *outcome) bool { return o == nil }), errors.Join(errs...)
}

// plans returns the runs that the flags ask for.
func plans() (rates, calls, regions []plan, err error) {
	match, err := regexp.Compile(*only)
	if err != nil {
		return nil, nil, nil, err
	}
	usual := plan{load: usualLoad, clients: clients, hold: usualHold, seed: *seed, strictly: true}
	if *soak > 0 {
		usual.topology, usual.faults, usual.load, usual.clients, usual.soak = topologySingle, mixable(), soakLoad, 4, *soak
		return []plan{usual}, nil, nil, nil
	}
	for _, f := range allFaults() {
		rates = append(rates, f.plans(usual)...)
	}
	for i := range uint64(mixes) {
		rates = append(rates, mix(usual, *seed+i))
	}
	for _, row := range callsRows {
		p, err := row.plan()
		if err != nil {
			return nil, nil, nil, err
		}
		calls = append(calls, p)
	}
	for _, row := range regionsRows {
		regions = append(regions, row.plan())
	}
	others := func(p plan) bool { return !match.MatchString(p.title()) }
	for _, rows := range []*[]plan{&rates, &calls, &regions} {
		*rows = slices.DeleteFunc(*rows, others)
	}
	return rates, calls, regions, nil
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
