package accuracy

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// Lab is a sort of scenario: Rates, Calls, Regions or Hot.
type Lab struct {
	kinds    []string // the words for the limiters
	central  string   // the kind that others are divided by
	quotient string   // the figure that this division gives
	words    map[string]word
	required []string
	figures  Figures // whose keys a must can name
	scales   map[string]func(Case) float64
	family   Family // the defaults
	agree    func(*Family, *reader)
	order    func(a, b *Family) int // of the families; nil: by name
}

// Family is a scenario file: the settings that its runs share, and the settings that vary.
type Family struct {
	Lab       *Lab
	Name      string // the file name without its extension
	Title     string
	Setting   string // the other lines that have settings
	Processes int
	Seed      uint64
	Span      time.Duration // of the load
	Steady    time.Duration // the first part of the load, which the figures leave out
	Latency   time.Duration // a round trip to Redis

	Rate       fleet.Scenario       // of Rates: the other settings, but not those that vary
	Call       fleet.CallScenario   // of Calls: the same
	Region     fleet.RegionScenario // of Regions: the same
	Hot        fleet.HotScenario    // of Hot: the same
	Factors    []float64            // load factors, one scenario each
	Overshoots []float64            // one row each for auto; other kinds have no overshoot
	Kinds      []string             // one row each
	Musts      []Must               // the bounds of the rows
	Plot       float64              // the factor of the plot; 0: no plot
}

// Case is one run, which becomes a row.
type Case struct {
	Family   *Family
	Scenario string // family and factor
	Kind     string // the kind, with the overshoot if there are several
	Factor   float64
	Rate     fleet.Scenario       // of Rates
	Call     fleet.CallScenario   // of Calls
	Region   fleet.RegionScenario // of Regions
	Hot      fleet.HotScenario    // of Hot
}

// exact is the kind that the utilisation of a whole run is relative to.
const exact = "exact"

// kinds has the words of scenario files for the limiters. exact is the checked model, because the
// real scripts take minutes for the same result.
var kinds = map[string]fleet.Kind{
	"auto":           fleet.Auto,
	"strict":         fleet.Strict,
	"deferred":       fleet.Deferred,
	"count-and-push": fleet.CountAndPush,
	exact:            fleet.CentralExact,
	"redis-exact":    fleet.RedisExact,
}

// Rates has the scenarios of limits of a rate.
var Rates = &Lab{
	kinds: slices.Sorted(maps.Keys(kinds)), central: exact, quotient: "utilisation-whole",
	words: rateWords, required: []string{"processes", "limit", "load", "span", "kinds"},
	agree: (*Family).agreeRate, figures: rateFigures(Case{Family: &Family{}}, fleet.Report{}),
	scales: map[string]func(Case) float64{
		"burst": Case.burst, "budget": Case.budget, "microsecond": Case.microsecond, "floor": Case.floor,
	},
	family: Family{Overshoots: []float64{0.05}},
}

// Calls has the scenarios of limits of calls in flight.
var Calls = &Lab{
	kinds: []string{
		string(fleet.CentralExact), string(fleet.Engine), string(fleet.Limiter), string(fleet.SortedSet),
	},
	central: string(fleet.CentralExact), quotient: "share",
	words: callWords, required: []string{"processes", "limit", "calls", "load", "span", "kinds"},
	agree: (*Family).agreeCalls, figures: callFigures(Case{}, fleet.CallReport{}), order: byFleet,
	family: Family{Call: fleet.CallScenario{Keys: 1}},
}

// Regions has the scenarios of a limit in several regions.
var Regions = &Lab{
	kinds: []string{
		string(fleet.CentralExact), string(fleet.OneRedis), string(fleet.Regions), string(fleet.StaticShares),
	},
	central: string(fleet.CentralExact), quotient: "share",
	words: regionWords, required: []string{"regions", "processes", "limit", "load", "hot", "stay", "away", "span", "kinds"},
	agree: (*Family).agreeCalls, figures: regionFigures(Case{}, fleet.RegionReport{}),
	scales: map[string]func(Case) float64{"burst": Case.burst},
}

// Hot has the scenarios of one key in a large fleet.
var Hot = &Lab{
	kinds: []string{
		string(fleet.CentralExact), string(fleet.Leases), string(fleet.ShortLeases), string(fleet.DropRatio),
		string(fleet.DropRatioCapped), string(fleet.RateLeases),
	},
	central: string(fleet.CentralExact), quotient: "share",
	words: hotWords, required: []string{"processes", "limit", "load", "span", "kinds"},
	agree: (*Family).agreeHot, figures: hotFigures(Case{}, fleet.HotReport{}),
	scales: map[string]func(Case) float64{"burst": Case.burst},
}

// Read parses every scenario file (*.txt) of a directory.
func (l *Lab) Read(dir fs.FS) (all []*Family, err error) {
	names, err := fs.Glob(dir, "*.txt")
	for _, name := range names {
		text, unread := fs.ReadFile(dir, name)
		f, bad := l.Parse(name, string(text))
		all, err = append(all, f), errors.Join(err, unread, bad)
	}
	if l.order != nil {
		slices.SortStableFunc(all, l.order)
	}
	return all, err
}

// Cases returns the runs of the family, scenario by scenario.
func (f *Family) Cases() (all []Case) {
	for _, factor := range f.Factors {
		for _, kind := range f.Kinds {
			overshoots := []float64{0}
			if kind == "auto" {
				overshoots = f.Overshoots
			}
			for _, overshoot := range overshoots {
				all = append(all, f.at(factor, kind, overshoot))
			}
		}
	}
	return all
}

func (f *Family) at(factor float64, kind string, overshoot float64) Case {
	c := Case{Family: f, Scenario: f.Name + " ×" + number(factor), Kind: kind, Factor: factor, Rate: f.Rate, Call: f.Call, Region: f.Region, Hot: f.Hot}
	if kind == "auto" {
		c.Rate.Overshoot = overshoot
		if overshoot == 0 {
			c.Rate.Overshoot = -1 // 0 would be the default of the limiter
		}
		if len(f.Overshoots) > 1 {
			c.Kind += " " + number(overshoot)
		}
	}
	c.Rate.Name, c.Rate.Kind, c.Rate.Load.Factor = c.Scenario+" "+c.Kind, kinds[kind], factor
	c.Rate.Processes, c.Rate.Seed, c.Rate.Latency = f.Processes, f.Seed, f.Latency
	c.Rate.Span, c.Rate.Steady = f.Span, f.Steady
	c.Call.Kind, c.Call.Load = fleet.Kind(kind), factor
	c.Call.Processes, c.Call.Seed, c.Call.Latency = f.Processes, f.Seed, f.Latency
	c.Call.Span, c.Call.Steady = f.Span, f.Steady
	c.Region.Kind, c.Region.Load = fleet.Kind(kind), factor
	c.Region.Processes, c.Region.Seed, c.Region.Latency = f.Processes, f.Seed, f.Latency
	c.Region.Span, c.Region.Steady = f.Span, f.Steady
	c.Hot.Kind, c.Hot.Load = fleet.Kind(kind), factor
	c.Hot.Processes, c.Hot.Seed, c.Hot.Latency = f.Processes, f.Seed, f.Latency
	c.Hot.Span, c.Hot.Steady = f.Span, f.Steady
	return c
}

// limit returns the limit of a rate; zero: the case is one of Calls.
func (c Case) limit() hybridlimit.Limit { return cmp.Or(c.Rate.Limit, c.Region.Limit, c.Hot.Limit) }

// burst returns the burst of the limit in units.
func (c Case) burst() float64 { return float64(c.limit().BurstSize()) }

// microsecond returns the units that are refilled in a microsecond. Redis's clock has no smaller
// step, so a fleet without overshoot may seem to have an overshoot of this size.
func (c Case) microsecond() float64 {
	return float64(c.Rate.Limit.Rate) * float64(time.Microsecond) / float64(c.Rate.Limit.Period)
}

// budget returns the units that the fleet may admit early, at the resolution of Redis's clock.
func (c Case) budget() float64 { return math.Max(c.Rate.Overshoot, 0)*c.burst() + c.microsecond() }

// floor returns the least number of messages with which N processes can drain a bucket of L units
// fairly and without overshoot: N·log₂(L/N).
func (c Case) floor() float64 {
	n := float64(c.Rate.Processes)
	return n * math.Log2(c.burst()/n)
}

// number formats x without an exponent or trailing zeros.
func number(x float64) string {
	if math.IsNaN(x) {
		return none
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}
