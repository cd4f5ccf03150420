package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

func TestDebug(t *testing.T) {
	name := os.Getenv("DEBUG_FAULT")
	if name == "" {
		t.Skip()
	}
	f, err := faultNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(context.Background(), plan{topology: f.where()[0], faults: []*fault{f}, load: usualLoad, clients: 3, hold: 1500 * time.Millisecond, seed: 1, strictly: true})
	if err != nil {
		t.Fatal(err)
	}
	e := out.evidence
	for i, w := range e.clients {
		fmt.Println("client", i, w.last.Logged)
		for _, r := range w.history {
			if (r.kind == recordSync || r.kind == recordBreaker) && r.end() > e.over-int64(500*time.Millisecond) && r.begin < e.over+int64(2200*time.Millisecond) {
				if r.kind == recordSync && !r.failed {
					continue
				}
				fmt.Printf("  %8.1f kind %d failed %v took %.1f state %d\n", float64(r.begin-e.over)/1e6, r.kind, r.failed, ms(r.took), r.units)
			}
		}
		by := map[string][]time.Duration{}
		spans := w.open()
		for _, r := range w.history {
			if r.kind == recordDecision {
				open := slices.ContainsFunc(spans, func(s [2]int64) bool { return r.begin > s[0] && r.end() < s[1] })
				k := fmt.Sprint("open ", open, " warm ", r.warm, " ", r.source, " ", r.allowed)
				by[k] = append(by[k], r.took)
			}
		}
		for k, v := range by {
			slices.Sort(v)
			fmt.Println("  ", k, len(v), v[len(v)/2], v[len(v)*90/100], v[len(v)*99/100], v[len(v)-1])
		}
	}
	fmt.Printf("%+v %v\n", out.verdict, e.cpu)
}
