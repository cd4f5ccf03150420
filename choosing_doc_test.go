package hybridlimit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLabFiguresOfChoosing checks that the tables of docs/choosing.md have the figures
// of docs/lab/results.json. make lab writes that file.
func TestLabFiguresOfChoosing(t *testing.T) {
	var lab struct {
		Rows []struct {
			Scenario, Kind string
			PerUnit        float64 `json:"ops_per_admission"`
			PerDecision    float64 `json:"ops_per_decision"`
			Waits          float64
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
	page := choosing(t)
	for _, table := range []struct {
		after    string // the text before the table
		scenario string
		digits   int
		each     string // the unit per which ops are counted
		rows     map[string]string
	}{
		{"A hundred processes, 1000 a second", "fleet100-over ×1.5", 2, "unit", map[string]string{"`ModeAuto`": "auto", "`ModeStrict`": "strict", "`ModeDeferred`": "deferred"}},
		{"And ten processes, 10 000 a second", "fleet10-over ×1.5", 4, "unit", map[string]string{"`ModeAuto`": "auto", "`ModeStrict`": "strict", "`ModeDeferred`": "deferred"}},
		{"Two thousand users", "fleet40-sparse ×1", 2, "decision", map[string]string{"`ModeAuto`": "auto 0.05", "`ModeAuto`, `Overshoot: 0.5`": "auto 0.5", "`ModeStrict`": "strict", "`ModeDeferred`": "deferred"}},
	} {
		_, rest, ok := strings.Cut(page, table.after)
		if !ok {
			t.Errorf("docs/choosing.md has no %q", table.after)
			continue
		}
		for name, kind := range table.rows {
			_, line, ok := strings.Cut(rest, "\n| "+name+" | ")
			line, _, _ = strings.Cut(line, " |\n")
			found := false
			for _, r := range lab.Rows {
				if r.Scenario != table.scenario || r.Kind != kind {
					continue
				}
				found = true
				ops := r.PerUnit
				if table.each == "decision" {
					ops = r.PerDecision
				}
				beyond := "0"
				if r.Exceedance > 0.001 {
					beyond = fmt.Sprintf("%.0f %% of burst", 100*r.Exceedance)
				}
				waits := fmt.Sprintf("%.0f", 100*r.Waits)
				if r.Waits > 0 && r.Waits < 0.005 {
					waits = fmt.Sprintf("%.1f", 100*r.Waits)
				}
				if want := fmt.Sprintf("%.*f | %s %% | %s", table.digits, ops, waits, beyond); !ok || line != want {
					t.Errorf("%s, %s: docs/choosing.md has %q, the lab has %q", table.scenario, name, line, want)
				}
			}
			if !found {
				t.Errorf("the lab has no %s of %s", kind, table.scenario)
			}
		}
	}
}

func choosing(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// number reads a figure of a page: "76 500", "0.2".
func number(t *testing.T, s string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(strings.ReplaceAll(s, " ", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCreditsOfChoosing checks each C of the table against the formula.
func TestCreditsOfChoosing(t *testing.T) {
	_, table, _ := strings.Cut(choosing(t), "| Burst | N | C at 5 %")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile(`(?m)^\| ([\d ]+) \| (\d+) \| (\d+) \| (.*) \|$`).FindAllStringSubmatch(table, -1)
	if len(rows) < 5 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		burst, n, c := number(t, r[1]), number(t, r[2]), number(t, r[3])
		if want := float64(int64(0.05 * burst / max(n-1, 1))); c != want {
			t.Errorf("burst %v, N %v: C %v, want %v", burst, n, c, want)
		}
		if waits := strings.HasPrefix(r[4], "waits"); waits != (c == 0) {
			t.Errorf("burst %v, N %v: %s", burst, n, r[4])
		}
	}
}

// TestSizingOfChoosing checks the cost of an op against bench/REDIS.md, and the load of
// each row of the table against that cost.
func TestSizingOfChoosing(t *testing.T) {
	text, err := os.ReadFile("bench/REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	page := choosing(t)
	_, ops, _ := strings.Cut(string(text), "\n## A synced op\n")
	ops, _, _ = strings.Cut(ops, "\n## ")
	cost := map[int]float64{}
	for _, m := range regexp.MustCompile(`(?m)^\| (?:\*\*)?(1|8|64)(?:\*\*)? \| ([\d.]+) \| .*\|$`).FindAllStringSubmatch(ops, -1) {
		cost[int(number(t, m[1]))] = number(t, m[2])
	}
	if len(cost) != 3 {
		t.Fatalf("costs of batches: %v", cost)
	}
	said := regexp.MustCompile(`An op costs Redis (\d+) µs of one core in a full batch of 64, (\d+) in a batch of 8, and (\d+) alone`).FindStringSubmatch(page)
	if said == nil {
		t.Fatal("docs/choosing.md has no costs of an op")
	}
	for i, size := range []int{64, 8, 1} {
		if got := number(t, said[i+1]); got < cost[size]-1 || got > cost[size]+1 {
			t.Errorf("an op in a batch of %d: %v µs, measured %v", size, got, cost[size])
		}
	}
	rows := regexp.MustCompile(`(?m)^\| .+ \| ([\d ]+) \| ([\d.]+) \| ([\d ]+) \| (alone|of 8) \| ([\d.]+) %.*\|$`).FindAllStringSubmatch(page, -1)
	if len(rows) != 4 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		ops := number(t, r[1]) * number(t, r[2])
		if got := number(t, r[3]); got < ops*0.97 || got > ops*1.03 {
			t.Errorf("%s: %v ops a second, want %v", r[0], got, ops)
		}
		each := cost[1]
		if r[4] == "of 8" {
			each = cost[8]
		}
		if core, got := ops*each/1e4, number(t, r[5]); got < core*0.75 || got > core*1.25 {
			t.Errorf("%s: %v %% of a core, want %v", r[0], got, core)
		}
	}
}
