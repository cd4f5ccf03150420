package accuracy

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/fleet"
)

// Family is one scenario file: the settings that its runs share, and the
// settings that vary.
type Family struct {
	Name       string         // the file name without its extension
	Title      string         // for the page
	Base       fleet.Scenario // all but Kind, Load.Factor and Overshoot
	Factors    []float64      // load factors, one scenario each
	Overshoots []float64      // one row each for auto; other kinds have no overshoot
	Kinds      []fleet.Kind   // one row each
	Musts      []Must         // the bounds of the rows
	Plot       float64        // the factor of the plot; 0: no plot
}

// Case is one run, which becomes a row of the table.
type Case struct {
	Family   *Family
	Scenario string // family and factor
	Kind     string // its name in the table
	Run      fleet.Scenario
}

// exact is the kind that the utilisation of a whole run is relative to.
const exact = "exact"

// kinds has the words of scenario files for the limiters. exact is the checked
// model, because the real scripts take minutes for the same result.
var kinds = map[string]fleet.Kind{
	"auto":           fleet.Auto,
	"strict":         fleet.Strict,
	"deferred":       fleet.Deferred,
	"count-and-push": fleet.CountAndPush,
	exact:            fleet.CentralExact,
	"redis-exact":    fleet.RedisExact,
}

// kindName returns the word for a kind.
func kindName(k fleet.Kind) string {
	for name, kind := range kinds {
		if kind == k {
			return name
		}
	}
	return string(k)
}

// Cases returns the runs of the family, scenario by scenario.
func (f *Family) Cases() []Case {
	var all []Case
	for _, factor := range f.Factors {
		for _, kind := range f.Kinds {
			overshoots := f.Overshoots
			if kind != fleet.Auto {
				overshoots = []float64{0}
			}
			for _, overshoot := range overshoots {
				all = append(all, f.at(factor, kind, overshoot))
			}
		}
	}
	return all
}

func (f *Family) at(factor float64, kind fleet.Kind, overshoot float64) Case {
	c := Case{Family: f, Scenario: f.scenario(factor), Kind: kindName(kind), Run: f.Base}
	c.Run.Kind = kind
	c.Run.Load.Factor = factor
	if kind == fleet.Auto {
		c.Run.Overshoot = overshoot
		if overshoot == 0 {
			c.Run.Overshoot = -1 // 0 would be the default of the limiter
		}
		if len(f.Overshoots) > 1 {
			c.Kind += " " + number(overshoot)
		}
	}
	c.Run.Name = c.Scenario + " " + c.Kind
	return c
}

// scenario returns the name of the scenario with this factor.
func (f *Family) scenario(factor float64) string { return f.Name + " ×" + number(factor) }

// Setting describes the family's scenarios in one line.
func (f *Family) Setting() string {
	b := f.Base
	s := fmt.Sprintf("%d processes, %v, %v load, %v (steady after %v), round trip %v",
		b.Processes, b.Limit, b.Load.Shape, b.Span, b.Steady, b.Latency)
	for _, c := range b.Changes {
		s += fmt.Sprintf(", %v after %v", c.Limit, c.At)
	}
	switch b.Load.Shape {
	case fleet.OnOff:
		s += fmt.Sprintf(", on for %v and off for %v", b.Load.On, b.Load.Off)
	case fleet.Rush:
		s += fmt.Sprintf(", once within %v", b.Load.On)
	case fleet.Groups:
		s += fmt.Sprintf(", %d–%d calls within %v each %v", b.Load.MinSize, b.Load.MaxSize, b.Load.On, b.Load.Off)
		if b.Load.InTurn {
			s += ", on each process in turn"
		}
	}
	if b.Load.Zipf > 0 {
		s += fmt.Sprintf(", shares of the processes by Zipf %s", number(b.Load.Zipf))
	}
	if b.Load.Keys > 1 {
		s += fmt.Sprintf(", %d keys", b.Load.Keys)
		if b.Load.KeyZipf > 0 {
			s += " Zipf " + number(b.Load.KeyZipf)
		}
		if b.Load.KeyHigh > 0 {
			s += fmt.Sprintf(" clamped to a load of %s–%s each", number(b.Load.KeyLow), number(b.Load.KeyHigh))
		}
	}
	if b.Load.MaxCost > 1 {
		s += fmt.Sprintf(", costs %d–%d", max(b.Load.MinCost, 1), b.Load.MaxCost)
	}
	if b.Cold {
		s += ", all start with the load"
	}
	return s
}

// burst returns the burst of the limit in units.
func (c Case) burst() float64 { return float64(c.Run.Limit.BurstSize()) }

// microsecond returns the units that are refilled in a microsecond. Redis's
// clock has no smaller step, so a fleet without overshoot may seem to have an
// overshoot of this size.
func (c Case) microsecond() float64 {
	return float64(c.Run.Limit.Rate) * float64(time.Microsecond) / float64(c.Run.Limit.Period)
}

// budget returns the units that the fleet may admit early, at the resolution of
// Redis's clock.
func (c Case) budget() float64 { return math.Max(c.Run.Overshoot, 0)*c.burst() + c.microsecond() }

// floor returns the least number of messages with which N processes can drain a
// bucket of L units fairly and without overshoot: N·log₂(L/N).
func (c Case) floor() float64 {
	n := float64(c.Run.Processes)
	return n * math.Log2(c.burst()/n)
}

// steady returns the length of the steady part in seconds.
func (c Case) steady() float64 { return (c.Run.Span - c.Run.Steady).Seconds() }

// number formats x without an exponent or trailing zeros.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
