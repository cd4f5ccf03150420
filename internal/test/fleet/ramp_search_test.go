//go:build search && !race

// The fleets of the other tests run the same code under the race detector, which takes five times the time.

package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// A ramp above a floor admits a call with a probability that grows from 0 at the floor to 1 at the end of the ramp. hybrid and
// local have none: docs/decisions/0049. The tests of this file measure the effect of one.

// ramps has the loads under which ramps are compared. Their critical calls are 300 a second and the spikes.
var ramps = []struct {
	name  string
	rest  float64 // other calls a second
	load  Load
	spike int
}{
	{"flood", 10_000, Load{}, 150},
	{"mild", 1000, Load{}, 150},
	{"on/off", 3000, Load{Shape: OnOff, On: time.Second, Off: time.Second}, 150},
	{"large spikes", 10_000, Load{}, 350},
}

// rampScenario returns a run of 1000/s with a burst of 1000 under one of these loads.
func rampScenario(tb testing.TB, load int) Scenario {
	l, critical, rate := ramps[load], 300.0, 1000.0
	s := Scenario{
		Seed: testenv.Seed(tb), Processes: 100, Limit: hybridlimit.PerSecond(int64(rate)), Latency: 500 * time.Microsecond,
		Floor: 0.2, Critical: critical / (critical + l.rest), Spike: l.spike, Span: 12 * time.Second, Steady: 4 * time.Second, Load: l.load,
	}
	s.Load.Factor = (critical + l.rest) / rate
	return s
}

// TestRampOfOneBucket decides the calls of a fleet by one bucket without a network, as package local does. Under a flood the
// level stays near the floor, so a ramp changes little. At a load slightly above the limit the level is within the ramp, and the
// other calls do not pause after a spike. A ramp costs a part of their burst. It protects fewer critical calls than the floor in
// its middle. A ramp in five steps, which five classes can make, has the same effects.
func TestRampOfOneBucket(t *testing.T) {
	type row struct {
		floor, ramp float64
		steps       bool
	}
	step, ramp, steps := row{floor: 0.2}, row{0.2, 0.3, false}, row{0.2, 0.3, true}
	for load, l := range ramps {
		s := rampScenario(t, load)
		s.Kind = CentralExact
		var w *world
		run(t, s, func(of *world) { w = of })
		all, of := w.decisions(), map[row]flow{}
		for _, c := range []row{step, {floor: 0.35}, {0.2, 0.1, false}, ramp, steps} {
			f := w.flow(all, w.ramp(all, c.floor, c.ramp, c.steps))
			of[c] = f
			t.Logf("%s, floor %.2f, ramp %.1f, in steps %t: %s", l.name, c.floor, c.ramp, c.steps, f)
			if l.spike < 200 && (f.critical < 0.99 || f.spikes < 0.99) {
				t.Errorf("%.3f of the critical calls and %.3f of those in spikes were admitted, want 0.99", f.critical, f.spikes)
			}
		}
		var as bool // the figures are as documented
		switch l.name {
		case "flood":
			as = of[ramp].pause > 0.8*of[step].pause && of[steps].pause > 0.8*of[step].pause
		case "mild":
			as = of[ramp].pause < 0.3*of[step].pause && of[steps].pause < 0.3*of[step].pause
		case "on/off":
			as = of[ramp].rest < 0.97*of[step].rest
		case "large spikes":
			as = of[ramp].critical < 0.9 && of[row{floor: 0.35}].critical > 0.99
		}
		if !as {
			t.Errorf("%s: %s without a ramp, %s with one, and %s in steps", l.name, of[step], of[ramp], of[steps])
		}
	}
}

// TestRamp compares floors with ramps in a fleet. A drawn floor makes no process ask more often, because Redis gives it a next
// poll. A ramp of classes costs at least one and a half times as many ops.
func TestRamp(t *testing.T) {
	const drawn, classes = "a floor drawn for each op", "five classes"
	rows := []struct {
		floor, ramp float64
		how         string
	}{{0.2, 0, "floor"}, {0.2, 0.3, drawn}, {0.2, 0.3, classes}, {0.35, 0, "floor"}, {0.2, 0.1, drawn}, {0.2, 0.1, classes}}
	loads := len(ramps)
	if !testenv.Long() {
		rows, loads = rows[:3], 1
	}
	for load, l := range ramps[:loads] {
		var floor, critical float64 // ops per admission, and the part of the critical calls, without a ramp
		for _, c := range rows {
			s := rampScenario(t, load)
			s.Floor = c.floor
			if !testenv.Long() {
				s.Processes, s.Span, s.Steady = 30, 3*time.Second, time.Second
			}
			var w *world
			var draws int
			r := run(t, s, func(of *world) {
				w = of
				switch c.how {
				case drawn:
					w.rewrite = w.drawFloors(c.ramp, &draws)
				case classes:
					for i := 1.0; i < rampSteps; i++ {
						w.floors = append(w.floors, c.floor+c.ramp*i/(rampSteps-1))
					}
				}
			})
			f, ops := w.flow(w.decisions(), func(c *call) bool { return c.allowed }), float64(r.Ops)/float64(r.Admitted)
			t.Logf("%s, floor %.2f, ramp %.1f, %s: %s, exceedance %.1f, %.3f ops per admission, %.3f waited",
				l.name, c.floor, c.ramp, c.how, f, r.Exceedance, ops, float64(r.Waited)/float64(r.Calls))
			if c.how == drawn && draws == 0 {
				t.Error("no op has a floor")
			}
			if len(r.Violated) > 0 || r.Exceedance > 50 {
				t.Errorf("exceedance %.1f, violated: %q", r.Exceedance, r.Violated)
			}
			if l.spike < 200 && (f.critical < 0.99 || f.spikes < 0.99) {
				t.Errorf("%.3f of the critical calls and %.3f of those in spikes were admitted, want 0.99", f.critical, f.spikes)
			}
			if l.spike > 200 && c.how == classes && f.critical > critical {
				t.Errorf("five classes admit %.3f of the critical calls, and one %.3f", f.critical, critical)
			}
			switch {
			case floor == 0:
				floor, critical = ops, f.critical
			case c.how == drawn && ops > 1.25*floor, c.how == classes && ops < 1.5*floor:
				t.Errorf("%.3f ops per admission, and %.3f without a ramp", ops, floor)
			}
		}
	}
}

// rampSteps is the number of classes of a ramp in steps.
const rampSteps = 5

// ramp decides calls by one bucket, and reports whether it admitted a call. Each call that is not critical has a random floor
// within the ramp, which is the same as a probability that grows with the level.
func (w *world) ramp(all []*call, floor, ramp float64, steps bool) func(*call) bool {
	var s algo.State
	l, rng, in := algo.LimitOf(w.s.Limit), rand.New(rand.NewPCG(w.s.Seed, 0)), map[*call]bool{}
	for _, c := range all {
		op := algo.Op{Asks: []int64{c.cost}}
		if !c.important {
			part := rng.Float64()
			if steps {
				part = math.Floor(part*rampSteps) / (rampSteps - 1)
			}
			op.Floor = hybridlimit.Class{Floor: floor + ramp*part}.Units(w.s.Limit)
		}
		next, ans, dirty := l.Apply(s, op, (w.start.UnixNano()+c.at)/1000)
		if dirty {
			s = next
		}
		in[c] = ans.Granted == c.cost
	}
	return func(c *call) bool { return in[c] }
}

// floorOfOp is the floor in the text of an op: see lua/codec.lua.
var floorOfOp = regexp.MustCompile(` f\d+`)

// drawFloors returns a function that raises the floor of each op of a message by a random part of the ramp. It counts them.
func (w *world) drawFloors(ramp float64, draws *int) func(args []string) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(w.s.Seed, 0))
	raise := func(text string) string {
		*draws++
		floor, _ := strconv.Atoi(text[2:])
		return fmt.Sprint(" f", floor+int(ramp*rng.Float64()*float64(w.s.Limit.BurstSize())))
	}
	return func(args []string) {
		mu.Lock()
		defer mu.Unlock()
		for i := range args {
			args[i] = floorOfOp.ReplaceAllStringFunc(args[i], raise)
		}
	}
}

// flow is figures of the steady part of a run.
type flow struct {
	critical, spikes float64 // parts that were admitted
	rest             float64 // other calls admitted, per second
	pause            float64 // ms, the longest time of a second in which no other call is admitted; the mean over all seconds
	ofProcess        float64 // ms, the longest such time of a process in the run; the mean over all processes
	jain             float64 // Jain's index of the other calls admitted, by process
	deviation        float64 // standard deviation of the admitted calls in 100 ms, critical ones included
}

func (f flow) String() string {
	return fmt.Sprintf("%.3f of critical calls, %.3f in spikes, %.0f others/s, pause %.0f ms, of a process %.0f ms, Jain %.3f, deviation %.1f",
		f.critical, f.spikes, f.rest, f.pause, f.ofProcess, f.jain, f.deviation)
}

// flow measures the calls that were admitted. all is in the order of time.
func (w *world) flow(all []*call, in func(*call) bool) (f flow) {
	type process struct {
		last, pause int64
		units       float64
	}
	seconds := float64(w.s.Span-w.s.Steady) / 1e9
	processes, tenths, last := make([]process, w.s.Processes), make([]float64, w.s.Span/SampleEvery), int64(w.s.Steady)
	for i := range processes {
		processes[i].last = last
	}
	pauses := make([]int64, w.s.Span/time.Second)
	var critical, spikes float64
	for _, c := range all {
		if !w.steady(c) {
			continue
		}
		var is float64
		if in(c) {
			is = 1
			tenths[c.at/int64(SampleEvery)]++
		}
		switch p := &processes[c.process]; {
		case c.spike:
			spikes, f.spikes = spikes+1, f.spikes+is
			fallthrough
		case c.important:
			critical, f.critical = critical+1, f.critical+is
		case is > 0:
			f.rest += 1 / seconds
			pauses[c.at/1e9] = max(pauses[c.at/1e9], c.at-last)
			p.units, p.pause, p.last, last = p.units+1, max(p.pause, c.at-p.last), c.at, c.at
		}
	}
	f.critical, f.spikes = f.critical/critical, f.spikes/spikes
	for _, pause := range pauses[w.s.Steady/time.Second:] {
		f.pause += float64(pause) / 1e6 / seconds
	}
	var sum, squares float64
	for _, p := range processes {
		f.ofProcess += float64(p.pause) / 1e6 / float64(len(processes))
		sum, squares = sum+p.units, squares+p.units*p.units
	}
	f.jain = sum * sum / (float64(len(processes)) * squares)
	f.deviation = deviation(tenths[w.s.Steady/SampleEvery:])
	return f
}

func deviation(of []float64) float64 {
	var mean, variance float64
	for _, x := range of {
		mean += x / float64(len(of))
	}
	for _, x := range of {
		variance += (x - mean) * (x - mean) / float64(len(of))
	}
	return math.Sqrt(variance)
}
