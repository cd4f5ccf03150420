package hybridlimit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestFiguresInTheReadme checks that README's table of Redis operations has the figures
// of docs/lab/results.json. make lab writes that file.
func TestFiguresInTheReadme(t *testing.T) {
	var lab struct {
		Rows []struct {
			Scenario, Kind string
			Ops            float64 `json:"ops_per_admission"`
			Exceedance     float64 `json:"exceedance_of_burst"`
		}
	}
	text, err := os.ReadFile("docs/lab/results.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &lab); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	scenarios := []string{"fleet100-half ×0.5", "fleet100-over ×1.5", "fleet100-over ×10"}
	for row, kinds := range map[string][]string{
		"| `ModeAuto`, `ModeStrict` | 0": {"auto", "strict"}, "| `ModeDeferred` | 0": {"deferred"}, "| count locally, push each 50 ms | 0": {"count-and-push"},
	} {
		_, rest, ok := strings.Cut(string(page), row)
		if !ok {
			t.Errorf("no row %q", row)
			continue
		}
		line, _, _ := strings.Cut("0"+rest, "\n")
		cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
		for i, scenario := range scenarios {
			for _, kind := range kinds {
				found := false
				for _, r := range lab.Rows {
					if r.Scenario != scenario || r.Kind != kind {
						continue
					}
					found = true
					want := fmt.Sprintf("%.2f, %.0f %%", r.Ops, 100*r.Exceedance)
					if r.Exceedance < 0.000_01 {
						want = fmt.Sprintf("%.2f, 0", r.Ops)
					}
					if got := strings.TrimSuffix(cells[i], " of burst"); got != want {
						t.Errorf("%s, %s: README has %q, the lab has %q", kind, scenario, got, want)
					}
				}
				if !found {
					t.Errorf("the lab has no %s of %s", kind, scenario)
				}
			}
		}
	}
}

// TestSpeedInTheReadme checks README's ratios against bench/RESULTS.md, which make bench
// writes.
func TestSpeedInTheReadme(t *testing.T) {
	cells := func(file, row string) []string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(text), "| "+row+" | ")
		if !ok {
			t.Fatalf("%s has no row %q", file, row)
		}
		line, _, _ := strings.Cut(rest, "\n")
		return strings.Split(strings.TrimSuffix(line, " |"), " | ")
	}
	for row, measured := range map[string]string{
		"one hot key / a bare `rate.Limiter`":                         "`Allow`, hot key, 1 goroutine / x/time/rate",
		"by `Key(key)` / the same":                                    "`Key(key).Allow`, 1 goroutine / x/time/rate",
		"from 64 goroutines / the same":                               "`Allow`, hot key, 64 goroutines / x/time/rate, 64",
		"one hot key, denied / the same":                              "`Allow`, hot key, denied, 1 goroutine / x/time/rate denied",
		"these keys, from 64 goroutines / the same":                   "`Allow`, Zipf, 64 goroutines / sync.Map of x/time/rate",
		"100 000 keys by Zipf's law / a `sync.Map` of `rate.Limiter`": "`Allow`, Zipf, 1 goroutine / sync.Map of x/time/rate",
	} {
		if got, want := cells("README.md", row)[0], cells("bench/RESULTS.md", measured)[1]; got != want {
			t.Errorf("%s: %s, bench/RESULTS.md has %s", row, got, want)
		}
	}
}

// TestFirstFiguresInTheReadme checks that the sentences above README's table have the
// figures of the table.
func TestFirstFiguresInTheReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	last := func(row string) (perHundred, excess string) {
		t.Helper()
		_, rest, ok := strings.Cut(string(page), row)
		line, _, _ := strings.Cut(rest, " |\n")
		if !ok {
			t.Fatalf("no row %q", row)
		}
		ops, excess, _ := strings.Cut(line[strings.LastIndex(line, "| ")+2:], ", ")
		each, err := strconv.ParseFloat(ops, 64)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%.0f", 100*each), excess
	}
	ours, beyond := last("| `ModeAuto`, `ModeStrict` |")
	theirs, excess := last("| count locally, push each 50 ms |")
	want := fmt.Sprintf("%s Redis operations per 100 admitted units, and the limit is never exceeded. A limiter that counts locally and pushes each 50 ms needs %s operations, and exceeds the limit by %s of a burst", ours, theirs, excess)
	if beyond != "0" || !strings.Contains(string(page), want) {
		t.Errorf("the table has %q, and README does not say %q", beyond, want)
	}
}
