package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"
)

func main() {
	isWorker()
	only := flag.String("run", "", "only faults that match this `regexp`")
	flag.Parse()
	if err := mainErr(*only); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func mainErr(only string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	for _, f := range allFaults() {
		for _, on := range f.where() {
			if !match.MatchString(f.name + " on " + on) {
				continue
			}
			out, err := run(context.Background(), plan{topology: on, faults: []*fault{f}, load: usualLoad, clients: 3, hold: 1500 * time.Millisecond, seed: 1, strictly: true})
			if err != nil {
				fmt.Println(f.name, on, "ERROR", err)
				continue
			}
			v := out.verdict
			fmt.Printf("%-32s %s %6d %d slow %.1fms p99 %v shared %.0f/%.0f alone %.0f/%.0f %s rec %v cpu %.2f\n", f.name, on, v.decisions, v.errors, ms(v.slowest), v.p99,
				v.shared.units, v.shared.bound, v.alone.units, v.alone.bound, v.accounting, v.recovered, out.evidence.cpu)
			for _, b := range v.violations {
				fmt.Println("   BROKEN", b.kind, b.text)
			}
		}
	}
	return nil
}
