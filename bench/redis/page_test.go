package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// rowsOf returns results with all rows of a scale.
func rowsOf(size scale, figures func(table, load, name string) benchkit.Figures) *results {
	r := &results{scale: size}
	add := func(table, load, name string) { r.Add(table, load, name, figures(table, load, name)) }
	for _, n := range sizes {
		add("op", "", strconv.Itoa(n))
	}
	for _, f := range beatFleets {
		add("beat", strconv.Itoa(f.groups), strconv.Itoa(f.limiters))
	}
	for _, k := range kinds {
		add("decision", onHotKey, k.name)
		add("timed", onHotKey, k.name)
	}
	add("decision", "Zipf, 100 000 keys", "hybrid")
	add("decision", "Zipf, 100 000 keys, 50 000/s", "hybrid")
	for _, name := range []string{"global", "redis_rate"} {
		add("decision", onOwnKeys, name)
		add("single", onOwnKeys, name)
		add("storm", onOwnKeys, name)
	}
	for _, load := range size.fleets {
		for _, k := range load.kinds {
			add("fleet", load.name, k.name)
		}
	}
	for _, burst := range hotBursts {
		for _, k := range hotKinds {
			add("hot", burst.name, k.name)
		}
	}
	add("idle", "", "no limiter")
	r.Add("idle", "", idleLimiter, benchkit.Figures{"keys": float64(size.idleKeys)})
	for _, name := range []string{plainCache, ownCache, "hybrid on Redis"} {
		add("churn", "", name)
	}
	add("survival", "", plainCache)
	add("survival", "", ownCache)
	return r
}

// TestPage checks that REDIS.md has the texts, the tables and the rows that the program prints. Its figures are
// those of a measurement.
func TestPage(t *testing.T) {
	r := rowsOf(whole, func(_, _, _ string) benchkit.Figures { return benchkit.Figures{} })
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
