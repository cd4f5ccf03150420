package accuracy

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

const wholeHot = `title two words
processes 20
limit 200/s burst 400
load 0.5 1.5
step 2s
skew 1
redis 100us
rtt 1ms
span 8s
steady 3s
seed 3
sized
plot 1.5
parts 4
dies 5s
kinds leases short-leases central
must leases exceedance <= 5% of burst
`

func TestParseHotKnowsEveryWord(t *testing.T) {
	got, err := Hot.Parse("dir/every.txt", wholeHot)
	if err != nil {
		t.Fatal(err)
	}
	want := fleet.HotScenario{
		Seed: 3, Kind: fleet.ShortLeases, Processes: 20, Limit: hybridlimit.TokenBucket(200, time.Second, 400), Load: 1.5,
		Step: 2 * time.Second, Zipf: 1, Latency: time.Millisecond, RedisOp: 100 * time.Microsecond, Sized: true,
		Span: 8 * time.Second, Steady: 3 * time.Second, Parts: 4, Dies: 5 * time.Second,
	}
	c := got.Cases()[4]
	if !reflect.DeepEqual(c.Hot, want) || got.Plot != 1.5 || got.Title != "two words" {
		t.Errorf("the fifth case runs %+v, want %+v", c.Hot, want)
	}
	if bound := got.Musts[0].bound(c, nil); bound != 20 {
		t.Errorf("the bound is %v, want 5 %% of 400", bound)
	}
	for _, words := range []map[string]word{commonWords, hotWords} {
		for word := range words {
			if !strings.Contains("\n"+wholeHot, "\n"+word) {
				t.Errorf("%s is not in the file of this test", word)
			}
		}
	}
	for _, tc := range []struct{ line, by, want string }{
		{"limit 200/s burst 400", "limit 200/s fixed window", "token bucket"},
		{"plot 1.5", "plot 2", "no factor 2"},
		{"step 2s", "step 4s", "after the step"},
		{"kinds leases short-leases central", "kinds leases", "central"},
		{"kinds leases short-leases central", "kinds leases drop-ratio central", "only leases can be split"},
		{"parts 4", "parts 1", "one of several masters dies"},
		{"sized", "sized 3", "one too many"},
	} {
		if _, err := Hot.Parse("bad.txt", strings.Replace(wholeHot, tc.line, tc.by, 1)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.by, err)
		}
	}
}

// TestHotScenariosParse: each scenario bounds the excess of leases, and what they or leased rates admit.
func TestHotScenariosParse(t *testing.T) {
	families, err := Hot.Read(os.DirFS("hot"))
	if err != nil || len(families) == 0 {
		t.Fatal(err)
	}
	for _, f := range families {
		for metric, kinds := range map[string][]string{"exceedance": {"leases"}, "share": {"leases", "rate-leases"}} {
			if !slices.ContainsFunc(f.Musts, func(m Must) bool {
				return m.Metric == metric && slices.ContainsFunc(m.Kinds, func(k string) bool { return slices.Contains(kinds, k) })
			}) {
				t.Errorf("%s does not bound %s", f.Name, metric)
			}
		}
	}
}

// TestShortHot runs the tiny scenarios of a hot key, and draws one.
func TestShortHot(t *testing.T) {
	families, err := Hot.Read(os.DirFS("testdata/hot"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runAll(t, families, "make lab-hot", func(result *Result, _ bool) {
		if result.Failed() > 0 || len(result.Plots()) != 1 {
			t.Errorf("%d musts do not hold, %d plots: %+v", result.Failed(), len(result.Plots()), result.Rows)
		}
		for _, row := range writeAndRead(t, result, dir+"/hot.json").Rows {
			if share := row.of("share"); !(share > 0.5 && share < 1.5) || !(row.of("low") > 0) || (row.of("ops") > 0) != (row.Kind != "central") {
				t.Errorf("%+v", row)
			}
		}
		for _, p := range result.Plots() {
			picture, err := os.ReadFile(dir + "/" + p.File)
			if err != nil {
				t.Fatal(err)
			}
			wellFormed(t, picture)
		}
	})
}

// TestHotTable plants rows and reads their line in the page.
func TestHotTable(t *testing.T) {
	r := &Result{Rows: []Row{
		{Scenario: "n100 ×1.5", Kind: "leases", Figures: Figures{"ops/process/s": 0.4217, "exceedance/burst": 0, "share": 1, "low": 0.987, "high": 1.013, "without": 0.002, "largest-part": 0.26}},
		{Scenario: "n100 ×1.5", Kind: "drop-ratio", Figures: Figures{"ops/process/s": 1, "exceedance/burst": 0.59, "share": 0.99}},
	}}
	const row = "| n100 ×1.5 | 0.422 | – | 1 | – | 0 % | 59 % | – | – | 1 | 0.99 | – | 0.99 to 1.01 | 0.2 % | 26 % |\n"
	if page := hot(results{hot: r}); !strings.HasSuffix(page, row) {
		t.Errorf("%s does not end with %s", page, row)
	}
}
