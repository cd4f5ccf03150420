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

// whole has every word except cold and plot.
const whole = `# A comment.
title   two words  # and another comment
processes 100
limit 100/min burst 20
load on/off 1.5 3 on 250ms off 750ms
skew 1.5
keys 2000 zipf 1.0 low 0.1 high 3
cost 5
overshoot 0 50%
interval 20ms
span 20s
steady 5s
warm 3s
rtt 1ms
seed 7
kinds auto exact
must * jain >= 0.98
must auto exact ops/decision <= 100% of exact
must * spread <= 1 of burst at 1.5
change 6s 50/min burst 10
classes floor 0.2 critical 3%
`

func TestParseKnowsEveryWord(t *testing.T) {
	got, err := Rates.Parse("dir/every.txt", whole)
	if err != nil {
		t.Fatal(err)
	}
	want := &Family{
		Lab: Rates, Name: "every", Title: "two words",
		Setting: "processes 100, limit 100/min burst 20, load on/off 1.5 3 on 250ms off 750ms, skew 1.5, " +
			"keys 2000 zipf 1.0 low 0.1 high 3, cost 5, overshoot 0 50%, interval 20ms, span 20s, steady 5s, warm 3s, " +
			"rtt 1ms, seed 7, change 6s 50/min burst 10, classes floor 0.2 critical 3%",
		Seed: 7, Processes: 100, Latency: time.Millisecond, Span: 20 * time.Second, Steady: 5 * time.Second,
		Rate: fleet.Scenario{
			Limit: hybridlimit.TokenBucket(100, time.Minute, 20), Interval: 20 * time.Millisecond,
			Changes: []fleet.Change{{At: 6 * time.Second, Limit: hybridlimit.TokenBucket(50, time.Minute, 10)}},
			Load: fleet.Load{
				Shape: fleet.OnOff, On: 250 * time.Millisecond, Off: 750 * time.Millisecond,
				Zipf: 1.5, Keys: 2000, KeyZipf: 1, KeyLow: 0.1, KeyHigh: 3, MaxCost: 5,
			},
			Floor: 0.2, Critical: 0.03,
			Warm: 3 * time.Second,
		},
		Factors:    []float64{1.5, 3},
		Overshoots: []float64{0, 0.5},
		Kinds:      []string{"auto", "exact"},
		Musts: []Must{
			{Text: "* jain >= 0.98", Metric: "jain", Factor: 0.98, Line: 17},
			{
				Text: "auto exact ops/decision <= 100% of exact", Kinds: []string{"auto", "exact"},
				Metric: "ops/decision", AtMost: true, Factor: 1, Of: "exact", Line: 18,
			},
			{Text: "* spread <= 1 of burst at 1.5", Metric: "spread", AtMost: true, Factor: 1, Of: "burst", At: 1.5, Line: 19},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, words := range []map[string]word{commonWords, rateWords} {
		for word := range words {
			if word != "cold" && word != "plot" && !strings.Contains(whole, "\n"+word+" ") {
				t.Errorf("%s is not in the file of this test", word)
			}
		}
	}
	run := want.Rate
	run.Name, run.Kind, run.Load.Factor, run.Overshoot = "every ×1.5 auto 0.5", fleet.Auto, 1.5, 0.5
	run.Processes, run.Seed, run.Latency, run.Span, run.Steady = 100, 7, time.Millisecond, 20*time.Second, 5*time.Second
	if second := got.Cases()[1].Rate; !reflect.DeepEqual(second, run) {
		t.Errorf("the second case runs %+v, want %+v", second, run)
	}
}

func TestParseDefaults(t *testing.T) {
	f, err := Rates.Parse("x.txt", "processes 1\nlimit 10/250ms\nload ramp 2\nspan 1s\ncold\nkinds auto\nplot 2\n")
	if err != nil {
		t.Fatal(err)
	}
	if f.Title != "x" || f.Seed != 1 || f.Latency != 500*time.Microsecond || !f.Rate.Cold || f.Plot != 2 ||
		!slices.Equal(f.Overshoots, []float64{0.05}) || f.Rate.Limit != hybridlimit.TokenBucket(10, 250*time.Millisecond, 0) {
		t.Errorf("%+v", f)
	}
}

// TestParseLoads reads the loads that the whole file does not have.
func TestParseLoads(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		lines string
		want  fleet.Load
	}{
		{"load burst 1", fleet.Load{Shape: fleet.Burst}},
		{"load rush 1 on 3ms off 100ms", fleet.Load{Shape: fleet.Rush, On: 3 * ms, Off: 100 * ms}},
		{"load groups 1 on 5ms off 2s size 5 20", fleet.Load{
			Shape: fleet.Groups, On: 5 * ms, Off: 2000 * ms, MinSize: 5, MaxSize: 20,
		}},
		{"load groups 1 size 5 5 in-turn off 10s on 5ms\ncost 1000 8000", fleet.Load{
			Shape: fleet.Groups, On: 5 * ms, Off: 10_000 * ms, MinSize: 5, MaxSize: 5, InTurn: true, MinCost: 1000, MaxCost: 8000,
		}},
	} {
		f, err := Rates.Parse("x.txt", "processes 1\nlimit 10/s\nspan 1s\nkinds auto\n"+c.lines)
		if err != nil || f.Rate.Load != c.want || !slices.Equal(f.Factors, []float64{1}) {
			t.Errorf("%q: got %+v with factors %v, error %v, want %+v", c.lines, f.Rate.Load, f.Factors, err, c.want)
		}
	}
}

func TestParseSaysWhereItIsWrong(t *testing.T) {
	// Each line replaces a line of whole, or is appended to it.
	for _, c := range []struct{ replace, by, want string }{
		{"seed", "sede 7", `x.txt:15: unknown word "sede" (there are: change, classes, cold, cost,`},
		{"seed", "span 3s", "x.txt:15: span: said in line 11"},
		{"seed", "seed 0", `x.txt:15: seed: "0" is not a whole number of at least 1`},
		{"seed", "seed", "x.txt:15: seed: something is missing at the end"},
		{"seed", "seed 1 2", `x.txt:15: seed: "2" is one too many`},
		{"processes", "", "x.txt:21: processes is missing"},
		{"processes", "processes -3", `x.txt:3: processes: "-3" is not`},
		{"limit", "limit", "x.txt:4: limit: something is missing"},
		{"limit", "limit 1000", `x.txt:4: limit: hybridlimit: Limit ("1000") cannot be read: expected "/", "per" or "concurrent"`},
		{"limit", "limit 10/s bust 20", `x.txt:4: limit: hybridlimit: Limit ("10/s bust 20") cannot be read`},
		{"limit", "limit 0/s", `x.txt:4: limit: hybridlimit: Limit ("0/s") is not valid`},
		{"limit", "limit blocked", `x.txt:4: limit: "blocked" counts nothing`},
		{"load", "load stedy 1", `x.txt:5: load: unknown shape "stedy" (there are: burst, groups, on/off, ramp, rush, steady)`},
		{"load", "load steady", "x.txt:5: load: something is missing"},
		{"load", "load steady 0", "x.txt:5: load: a factor of 0 is no load"},
		{"load", "load steady 1 1", "x.txt:5: load: 1 is there twice"},
		{"load", "load steady 1 on 1s", `x.txt:5: load: "on" is one too many`},
		{"load", "load on/off 1", "x.txt:5: load: on/off needs both"},
		{"load", "load on/off 1 on 1s off 0s", `x.txt:5: load: off: "0s" is not a duration above 0`},
		{"load", "load rush 1 on 3ms", "x.txt:5: load: rush needs both"},
		{"load", "load rush 1 on 3ms off 1s size 5 20", `x.txt:5: load: unknown "size" (there are: off, on)`},
		{"load", "load rush 1 on 3ms off 1s", "x.txt:6: skew: the processes have equal parts"},
		{"load", "load groups 1 on 5ms off 2s", "x.txt:5: load: groups needs a size"},
		{"load", "load groups 1 on 5ms size 5 20", "x.txt:5: load: groups needs both"},
		{"load", "load groups 1 on 5ms off 2s size 5", "x.txt:5: load: size: something is missing"},
		{"load", "load groups 1 on 5ms off 2s size 5 4", "x.txt:5: load: size: 4 is below 5"},
		{"load", "load groups 1 on 5ms off 2s size 0 4", `x.txt:5: load: size: "0" is not a whole number`},
		{"load", "load groups 1 on 5ms off 2s size 5 20 in-turn", "x.txt:6: skew: the processes have equal parts"},
		{"cost", "cost 5 4", "x.txt:8: cost: 4 is below 5"},
		{"cost", "cost 5 6 7", `x.txt:8: cost: "7" is one too many`},
		{"skew", "skew NaN", `x.txt:6: skew: "NaN" is not a number of at least 0`},
		{"skew", "skew Inf", `x.txt:6: skew: "Inf" is not`},
		{"keys", "keys 10 low 3 high 1", "x.txt:7: keys: high is below low"},
		{"steady", "steady 20s", "x.txt:12: steady: nothing is left of a span of 20s"},
		{"warm", "warm 1s\ncold", "x.txt:13: warm: the start is cold"},
		{"change", "change 6s", "x.txt:20: change: something is missing"},
		{"change", "change 60s 50/min", "x.txt:20: change: 50 per 1m0s, burst 50 (token bucket) after 1m0s must be in order, within the span"},
		{"change", "change 6s 50/min sliding window", "x.txt:20: change: 50 per 1m0s (sliding window) after 6s must be"},
		{"limit", "limit 9/s sliding window", "x.txt:20: change: only a bucket may change"},
		{"kinds", "kinds auto exact count-and-push", "x.txt:20: change: count-and-push has no limit of a fleet"},
		{"", "change 5s 50/min", "x.txt:22: change: 50 per 1m0s, burst 50 (token bucket) after 5s must be in order"},
		{"kinds", "kinds", "x.txt:16: kinds: something is missing"},
		{"kinds", "kinds exact exact", "x.txt:16: kinds: exact is there twice"},
		{"kinds", "kinds exakt", `x.txt:16: kinds: unknown kind "exakt" (there are: auto, count-and-push,`},
		{"kinds", "kinds strict exact", "x.txt:9: overshoot: auto is the only kind that has one"},
		{"cost", "plot 1.5", "x.txt:8: plot: one line cannot show many keys"},
		{"limit", "limit 9/s sliding log\nplot 1.5", "x.txt:5: plot: what is drawn is the level of a bucket"},
		{"keys", "plot 2", "x.txt:7: plot: the load has no factor 2"},
		{"", "must jain >= 1", `x.txt:22: must: "jain" is out of place`},
		{"", "must * auto jain >= 1", `x.txt:22: must: "auto" is out of place`},
		{"", "must * jane >= 1", `x.txt:22: must: "jane" is out of place`},
		{"", "must * jain > 1", `x.txt:22: must: ">" is neither <= nor >=`},
		{"", "must * jain >= 1 off burst", `x.txt:22: must: unknown "off" (there are: at, of)`},
		{"", "must * jain >= 1 of bursts", `x.txt:22: must: of "bursts" is of nothing known`},
		{"", "must * jain >= 1 at 2", "x.txt:22: must: the load has no factor 2"},
		{"", "must * jain >= 1 at", "x.txt:22: must: at: something is missing"},
		{"", "must strict jain >= 1", "x.txt:22: must: strict is not one of the kinds"},
		{"", "must exact jain >= 1 of strict", "x.txt:22: must: strict is not one of the kinds"},
		{"", "must exact jain >= 1 of auto", "x.txt:22: must: several rows are auto's"},
	} {
		lines := strings.Split(strings.TrimSuffix(whole, "\n"), "\n")
		for i, line := range lines {
			if c.replace != "" && strings.HasPrefix(line, c.replace+" ") {
				lines[i] = c.by
			}
		}
		if c.replace == "" {
			lines = append(lines, c.by)
		}
		_, err := Rates.Parse("x.txt", strings.Join(lines, "\n"))
		if err == nil || !slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(line string) bool {
			return strings.HasPrefix(line, c.want)
		}) {
			t.Errorf("%q for %q: got error %v, want %q", c.by, c.replace, err, c.want)
		}
	}
}

// TestParseReportsEverything checks that one error lists all mistakes.
func TestParseReportsEverything(t *testing.T) {
	_, err := Rates.Parse("x.txt", "foo\nbar\n")
	if err == nil || strings.Count(err.Error(), "\n") != 6 {
		t.Errorf("want two unknown words and five missing ones, got %v", err)
	}
}

func TestScenarioFilesParse(t *testing.T) {
	for _, dir := range []string{"scenarios", "testdata/short"} {
		families, err := Rates.Read(os.DirFS(dir))
		if err != nil {
			t.Error(err)
		}
		if len(families) == 0 {
			t.Errorf("%s is empty", dir)
		}
		for _, f := range families {
			for _, c := range f.Cases() {
				if c.Rate.Kind == "" || c.Rate.Load.Factor == 0 || c.Rate.Span == 0 {
					t.Errorf("%s: %+v", f.Name, c.Rate)
				}
			}
		}
	}
}

func TestCasesAreScenarioByKind(t *testing.T) {
	f, err := Rates.Parse("f.txt", whole)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range f.Cases() {
		got = append(got, c.Rate.Name)
	}
	want := []string{"f ×1.5 auto 0", "f ×1.5 auto 0.5", "f ×1.5 exact", "f ×3 auto 0", "f ×3 auto 0.5", "f ×3 exact"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if none := f.Cases()[0].Rate.Overshoot; none >= 0 {
		t.Errorf("overshoot 0 becomes %v, want a negative value: the limiter takes 0 for its default", none)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("limit /s\nload\nmust * jain <=")
	f.Fuzz(func(_ *testing.T, text string) {
		family, err := Rates.Parse("x.txt", text)
		if err == nil {
			family.Cases()
		}
	})
}
