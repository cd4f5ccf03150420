package fleet

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// planOf returns the plan of a scenario. No plan depends on the kind.
func planOf(s Scenario) [][]arrival {
	s.Kind = CentralExact // needs no Redis
	return newWorld(nil, s).plan
}

// TestRush checks that the processes make all calls in turn, evenly in time, and nothing else.
func TestRush(t *testing.T) {
	s := Scenario{
		Seed: 1, Processes: 3, Limit: hybridlimit.TokenBucket(100, time.Hour, 50), Span: time.Second,
		Load: Load{Shape: Rush, Factor: 2, On: 10 * time.Millisecond, Off: 100 * time.Millisecond},
	}
	plan, slot := planOf(s), int64(s.Load.On)/100
	for p, want := range []int{34, 33, 33} {
		if len(plan[p]) != want {
			t.Errorf("process %d has %d calls, want %d", p, len(plan[p]), want)
		}
		for i, a := range plan[p] {
			if first := int64(s.Load.Off) + int64(3*i+p)*slot; a.at < first || a.at > first+slot || a.cost != 1 {
				t.Errorf("process %d: call %d at %d with cost %d, want it in the %d ns after %d", p, i, a.at, a.cost, slot, first)
			}
		}
	}
	s.Span = 105 * time.Millisecond // ends in the middle
	if n := calls(planOf(s)); n != 50 {
		t.Errorf("%d calls within the span, want 50", n)
	}
}

// TestGroups checks the times, the sizes, the costs and the processes of the groups.
func TestGroups(t *testing.T) {
	s := Scenario{
		Seed: 1, Processes: 4, Limit: hybridlimit.PerMinute(100), Span: 1000 * time.Second,
		Load: Load{
			Shape: Groups, Factor: 2, On: 5 * time.Millisecond, Off: 2 * time.Second, MinSize: 5, MaxSize: 20,
			MinCost: 10, MaxCost: 30,
		},
	}
	for _, c := range []struct {
		name   string
		inTurn bool
		zipf   float64
		want   [4]float64 // groups by process, of 1000
	}{
		{"random", false, 0, [4]float64{250, 250, 250, 250}},
		{"skewed", false, 1, [4]float64{480, 240, 160, 120}},
		{"in turn", true, 0, [4]float64{250, 250, 250, 250}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s
			s.Load.InTurn, s.Load.Zipf = c.inTurn, c.zipf
			sizes, costs := map[int]int{}, map[int64]int{}
			for p, calls := range planOf(s) {
				groups := groupsOf(calls, s.Load.On)
				d := math.Abs(float64(len(groups)) - c.want[p])
				if d > 5*math.Sqrt(c.want[p]) || c.inTurn && d > 0 {
					t.Errorf("process %d has %d groups, want %.0f", p, len(groups), c.want[p])
				}
				for i, g := range groups {
					sizes[len(g)]++
					for _, a := range g {
						costs[a.cost]++
					}
					between := time.Duration(g[0].at - groups[max(i-1, 0)][0].at)
					if between%time.Second > 2 && between%time.Second < time.Second-2 {
						t.Errorf("process %d: group %d comes %v after the last one, want whole seconds", p, i, between)
					}
				}
			}
			for size, n := range sizes {
				if size < 5 || size > 20 || n < 30 {
					t.Errorf("%d groups have %d calls, want about 63 of each size from 5 to 20", n, size)
				}
			}
			for cost := range costs {
				if cost < 10 || cost > 30 {
					t.Errorf("a call costs %d, want 10 to 30", cost)
				}
			}
			if len(sizes) != 16 || len(costs) != 21 {
				t.Errorf("%d sizes and %d costs, want 16 and 21", len(sizes), len(costs))
			}
		})
	}
}

// TestGroupsOfKeys checks that the skew of the keys is in the number of their groups.
func TestGroupsOfKeys(t *testing.T) {
	plan := planOf(Scenario{
		Seed: 1, Processes: 5, Limit: hybridlimit.PerMinute(100), Span: 100 * time.Second,
		Load: Load{
			Shape: Groups, Factor: 1, On: 50 * time.Millisecond, Off: time.Second, MinSize: 1, MaxSize: 1,
			Keys: 4, KeyZipf: 1, KeyHigh: 1.5,
		},
	})
	var got [4]float64
	for p, calls := range plan {
		last := int64(-1)
		for _, a := range calls {
			got[a.key]++
			if a.at <= last {
				t.Errorf("process %d: a call at %d after %d", p, a.at, last)
			}
			last = a.at
		}
	}
	for key, want := range [4]float64{150, 96, 64, 48} {
		if math.Abs(got[key]-want) > 1 {
			t.Errorf("key %d has %.0f groups, want %.0f", key, got[key], want)
		}
	}
}

// TestPlanIsOfTheSeed checks that a seed gives one plan, and another seed another plan.
func TestPlanIsOfTheSeed(t *testing.T) {
	for _, load := range []Load{
		{Shape: Rush, Factor: 1, On: time.Millisecond, Off: time.Millisecond, Keys: 3},
		{Shape: Groups, Factor: 1, On: time.Millisecond, Off: time.Second, MinSize: 1, MaxSize: 9, Keys: 3, MaxCost: 4},
	} {
		s := Scenario{Seed: 1, Processes: 3, Limit: hybridlimit.PerSecond(100), Span: 20 * time.Second, Load: load}
		a := planOf(s)
		if calls(a) == 0 || !reflect.DeepEqual(a, planOf(s)) {
			t.Errorf("%s: one seed gives two plans", load.Shape)
		}
		if s.Seed++; reflect.DeepEqual(a, planOf(s)) {
			t.Errorf("%s: another seed gives the same plan", load.Shape)
		}
	}
	if plan := planOf(Scenario{Processes: 3, Load: Load{Shape: Steady, Factor: 1}}); plan != nil {
		t.Errorf("a steady load has the plan %v", plan)
	}
}

// TestRunOfPlans runs the planned shapes. All offered units are those of the plan, and a process that joins has none.
func TestRunOfPlans(t *testing.T) {
	for _, load := range []Load{
		{Shape: Rush, Factor: 1.5, On: 10 * time.Millisecond, Off: 200 * time.Millisecond},
		{Shape: Groups, Factor: 1, On: 5 * time.Millisecond, Off: 100 * time.Millisecond, MinSize: 1, MaxSize: 9},
	} {
		s := Scenario{
			Seed: 1, Kind: Strict, Processes: 3, Limit: hybridlimit.TokenBucket(100, time.Hour, 100), Load: load,
			Warm: time.Second, Span: 2 * time.Second, Latency: 500 * time.Microsecond,
			Faults: []Fault{{At: 100 * time.Millisecond, Kind: Join}},
		}
		r := Run(t, s)
		if r.Calls != calls(planOf(s)) || r.Units > 100 || r.Units < 80 || len(r.Violated) > 0 || r.Exceedance > 0.001 {
			t.Errorf("%s: %d of %d calls, %d units of 100, exceedance %v, violated: %q",
				load.Shape, r.Calls, calls(planOf(s)), r.Units, r.Exceedance, r.Violated)
		}
	}
}

func calls(plan [][]arrival) (n int64) {
	for _, of := range plan {
		n += int64(len(of))
	}
	return n
}

// groupsOf splits calls where the distance is longer than a group.
func groupsOf(calls []arrival, on time.Duration) (groups [][]arrival) {
	for i, a := range calls {
		if i == 0 || a.at-calls[i-1].at > int64(on) {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], a)
	}
	return groups
}
