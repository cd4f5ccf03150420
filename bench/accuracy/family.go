package accuracy

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/fleet"
)

// Family is one scenario file: what its runs share, and what varies.
type Family struct {
	Name       string         // of the file, without its ending
	Title      string         // in words, for people
	Base       fleet.Scenario // all but Kind, Load.Factor and Overshoot
	Factors    []float64      // of the load: one scenario each
	Overshoots []float64      // one row of auto each; the other kinds have none
	Kinds      []fleet.Kind   // one row each
	Musts      []Must         // what rows are held against
	Plot       float64        // the factor that is drawn; 0: none
}

// Case is one run: a row of the table to come.
type Case struct {
	Family   *Family
	Scenario string // the family and the factor
	Kind     string // as the table calls it
	Run      fleet.Scenario
}

// exact is the kind that whole-run utilisation is measured against.
const exact = "exact"

// kinds are the words for what limits the fleet. The table's exact is the
// checked model: the real scripts, op by op, take minutes to say the same.
var kinds = map[string]fleet.Kind{
	"auto":           fleet.Auto,
	"strict":         fleet.Strict,
	"deferred":       fleet.Deferred,
	"count-and-push": fleet.CountAndPush,
	exact:            fleet.CentralExact,
	"redis-exact":    fleet.RedisExact,
}

// kindName is the word for a kind.
func kindName(k fleet.Kind) string {
	for name, kind := range kinds {
		if kind == k {
			return name
		}
	}
	return string(k)
}

// Cases are the runs of the family, scenario by scenario.
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
			c.Run.Overshoot = -1 // to the limiter 0 means its default
		}
		if len(f.Overshoots) > 1 {
			c.Kind += " " + number(overshoot)
		}
	}
	c.Run.Name = c.Scenario + " " + c.Kind
	return c
}

// scenario names one factor of the family.
func (f *Family) scenario(factor float64) string { return f.Name + " ×" + number(factor) }

// Setting says in one line what the family's scenarios are.
func (f *Family) Setting() string {
	b := f.Base
	s := fmt.Sprintf("%d processes, %v, %v load, %v (steady after %v), round trip %v",
		b.Processes, b.Limit, b.Load.Shape, b.Span, b.Steady, b.Latency)
	if b.Load.Shape == fleet.OnOff {
		s += fmt.Sprintf(", on for %v and off for %v", b.Load.On, b.Load.Off)
	}
	if b.Load.Zipf > 0 {
		s += fmt.Sprintf(", the processes' parts Zipf %s", number(b.Load.Zipf))
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
		s += fmt.Sprintf(", costs 1–%d", b.Load.MaxCost)
	}
	if b.Cold {
		s += ", all start with the load"
	}
	return s
}

// burst is the size of the limit's bucket in units.
func (c Case) burst() float64 { return float64(c.Run.Limit.BurstSize()) }

// microsecond is the units that come back in one: Redis's clock sees no less,
// so a fleet that never overshoots may seem to by as much.
func (c Case) microsecond() float64 {
	return float64(c.Run.Limit.Rate) * float64(time.Microsecond) / float64(c.Run.Limit.Period)
}

// budget is what the fleet may admit early, in units, as Redis's clock has it.
func (c Case) budget() float64 { return math.Max(c.Run.Overshoot, 0)*c.burst() + c.microsecond() }

// floor is the least number of messages in which N processes can drain a
// bucket of L fairly and without overshoot: N·log₂(L/N).
func (c Case) floor() float64 {
	n := float64(c.Run.Processes)
	return n * math.Log2(c.burst()/n)
}

// steady is the length of the steady part in seconds.
func (c Case) steady() float64 { return (c.Run.Span - c.Run.Steady).Seconds() }

// number prints a number as a person would.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
