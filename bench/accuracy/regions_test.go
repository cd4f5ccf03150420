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

const wholeRegions = `title two words
regions 3
processes 2
limit 900/s burst 500
load 0.95 1.5
hot 90%
stay 8s
away 80ms
span 24s
steady 3s
rtt 1ms
seed 3
kinds regions static-shares one-redis central
must * exceedance <= 5% of burst
must regions share >= 0.85 at 1.5
`

func TestParseRegionsKnowsEveryWord(t *testing.T) {
	got, err := Regions.Parse("dir/every.txt", wholeRegions)
	if err != nil {
		t.Fatal(err)
	}
	limit := hybridlimit.TokenBucket(900, time.Second, 500)
	want := &Family{
		Lab: Regions, Name: "every", Title: "two words",
		Setting: "regions 3, processes 2, limit 900/s burst 500, load 0.95 1.5, hot 90%, stay 8s, away 80ms, span 24s, " +
			"steady 3s, rtt 1ms, seed 3",
		Seed: 3, Processes: 2, Latency: time.Millisecond, Span: 24 * time.Second, Steady: 3 * time.Second,
		Region:  fleet.RegionScenario{Regions: 3, Limit: limit, Hot: 0.9, Stay: 8 * time.Second, Away: 80 * time.Millisecond},
		Factors: []float64{0.95, 1.5},
		Kinds:   []string{"regions", "static-shares", "one-redis", "central"},
		Musts: []Must{
			{Text: "* exceedance <= 5% of burst", Metric: "exceedance", AtMost: true, Factor: 0.05, Of: "burst", Line: 14},
			{Text: "regions share >= 0.85 at 1.5", Kinds: []string{"regions"}, Metric: "share", Factor: 0.85, At: 1.5, Line: 15},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, words := range []map[string]word{commonWords, regionWords} {
		for word := range words {
			if !strings.Contains("\n"+wholeRegions, "\n"+word+" ") {
				t.Errorf("%s is not in the file of this test", word)
			}
		}
	}
	c := got.Cases()[5]
	if want := (fleet.RegionScenario{
		Seed: 3, Kind: fleet.StaticShares, Regions: 3, Processes: 2, Limit: limit, Load: 1.5, Hot: 0.9, Stay: 8 * time.Second,
		Latency: time.Millisecond, Away: 80 * time.Millisecond, Span: 24 * time.Second, Steady: 3 * time.Second,
	}); c.Region != want {
		t.Errorf("the sixth case runs %+v, want %+v", c.Region, want)
	}
	if bound := got.Musts[0].bound(c, nil); bound != 25 {
		t.Errorf("the bound is %v, want 5 %% of 500", bound)
	}
}

// TestRegionScenariosParse: each scenario bounds the excess of all kinds, and what the regions admit.
func TestRegionScenariosParse(t *testing.T) {
	families, err := Regions.Read(os.DirFS("regions"))
	if err != nil || len(families) == 0 {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range []string{"exceedance", "share", "away/s"} {
			if !slices.ContainsFunc(f.Musts, func(m Must) bool { return m.Metric == metric }) {
				t.Errorf("%s does not bound %s", f.Name, metric)
			}
		}
	}
}

// TestBadRegionsAreSeen plants a run that admits too little, and one above the limit.
func TestBadRegionsAreSeen(t *testing.T) {
	f, err := Regions.Parse("made.txt", wholeRegions)
	if err != nil {
		t.Fatal(err)
	}
	r, cases := new(Result), f.Cases()[4:] // of the load 1.5
	r.Add([]Run{
		RegionRun(cases[0], fleet.RegionReport{Calls: 100, Admitted: 60, Waited: 1, Slowest: 80 * time.Millisecond, Away: 10.5}),
		RegionRun(cases[1], fleet.RegionReport{Calls: 100, Admitted: 40, Excess: 26}),
		RegionRun(cases[2], fleet.RegionReport{Calls: 100, Admitted: 90}),
		RegionRun(cases[3], fleet.RegionReport{Calls: 100, Admitted: 80}),
	})
	for i, want := range []int{1, 1, 0, 0} {
		if r.Rows[i].Failed != want {
			t.Errorf("%+v, want %d musts that do not hold", r.Rows[i], want)
		}
	}
	const row = "| made ×1.5 | 75 % | 50 % | 112.5 % | 0 % | 10.5 | 0 | 1 % | 0 % |\n"
	if page := apart(results{regions: r}); !strings.HasSuffix(page, row) {
		t.Errorf("%s does not end with %s", page, row)
	}
}
