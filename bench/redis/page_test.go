package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPage checks that REDIS.md has the texts, the tables and the rows that the program prints. Its figures are
// those of a measurement.
func TestPage(t *testing.T) {
	r := &results{scale: whole, idle: idleRows{keys: whole.idleKeys}, fleets: boundFleets()}
	for _, size := range sizes {
		r.costs = append(r.costs, costRow{size: size})
	}
	for _, f := range beatFleets {
		r.beats = append(r.beats, &beatRow{limiters: f.limiters, groups: f.groups})
	}
	for _, k := range kinds {
		d := &decisionRow{name: k.name, load: "one hot key", took: newHistogram()}
		if err := d.took.RecordValue(1); err != nil {
			t.Fatal(err)
		}
		r.decisions = append(r.decisions, d)
	}
	for _, load := range []string{"Zipf, 100 000 keys", "Zipf, 100 000 keys, 50 000/s"} {
		r.decisions = append(r.decisions, &decisionRow{name: "hybrid", load: load})
	}
	for _, name := range []string{"global", "redis_rate"} {
		d := &decisionRow{name: name, load: onOwnKeys, single: make(series[oneCaller], 1), storms: make(series[storm], 1)}
		r.decisions = append(r.decisions, d)
	}
	for _, name := range []string{"golang-lru, x/time/rate", "hybrid, its memory alone", "hybrid on Redis"} {
		r.churn = append(r.churn, churnRow{name: name})
		if len(r.survival) < 2 {
			s := survivalRow{name: name, cacheKeys: whole.survivalKeys, inUse: whole.survivalKeys / 5}
			r.survival = append(r.survival, s)
		}
	}
	text, err := os.ReadFile("../REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	want, got := append(skeleton(r.page()), "the end"), append(skeleton(string(text)), "the end")
	for i := range min(len(want), len(got)) {
		if got[i] != want[i] {
			t.Fatalf("REDIS.md has\n%s\nand the program prints\n%s", got[i], want[i])
		}
	}
}

// skeleton returns the lines of a page without figures: of the rows of a table only the names, and not the machine.
// The requirements are sorted, because those that are missed stand first.
func skeleton(page string) (lines []string) {
	names, table := 0, ""
	var musts []string
	for line := range strings.Lines(page) {
		cells := strings.Split(line, " | ")
		switch {
		case strings.Contains(line, "Load average: "):
			continue
		case !strings.HasPrefix(line, "|"):
			names, table = 0, ""
		case table == "":
			table = line
		case strings.HasPrefix(line, "|--"):
			names = 1
			if strings.HasPrefix(line, "|---|---|") {
				names = 2
			}
		case strings.HasPrefix(table, "| requirement |"):
			musts = append(musts, strings.Join(cells[:names], " | "))
			continue
		default:
			line = strings.Join(cells[:names], " | ")
		}
		lines = append(lines, line)
	}
	slices.Sort(musts)
	return append(lines, musts...)
}
