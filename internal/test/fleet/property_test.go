package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// draw returns a random scenario with about three hundred calls: a small fleet and a small limit, in every mode and with every
// fault. Each call may cost a script.
func draw(seed uint64) Scenario {
	rng := rand.New(rand.NewPCG(seed, 0))
	pick := func(ds ...time.Duration) time.Duration { return ds[rng.IntN(len(ds))] }
	s := Scenario{
		Name: fmt.Sprint(seed), Seed: seed, Processes: 2 + rng.IntN(4),
		Kind:    []Kind{Auto, Auto, Strict, Deferred, RedisExact}[rng.IntN(5)],
		Span:    time.Duration(1000+rng.IntN(1500)) * time.Millisecond,
		Latency: pick(0, 500*time.Microsecond, 2*time.Millisecond, 8*time.Millisecond),
		Cold:    rng.IntN(4) == 0,
	}
	rate, burst := 1+rng.Int64N(100), 1+rng.Int64N(100)
	if rng.IntN(4) == 0 {
		rate, burst = 1+rng.Int64N(5), 1+rng.Int64N(8)
	}
	s.Limit = drawLimit(rng, rate, burst)
	if s.Kind == Auto {
		s.Overshoot = []float64{0, 0.2, 0.5, 1, -1}[rng.IntN(5)]
	}
	s.Load = Load{
		Shape: []Shape{Steady, OnOff, Ramp, Burst}[rng.IntN(4)], On: 300 * time.Millisecond, Off: 200 * time.Millisecond,
		Factor: min(0.3*float64(1+rng.IntN(30)), 150/float64(s.Limit.Rate)*s.Limit.Period.Seconds()), Keys: 1 + rng.IntN(3), MaxCost: 1,
	}
	if rng.IntN(2) == 0 {
		s.Load.MaxCost = 1 + rng.Int64N(s.Limit.BurstSize())
	}
	if rng.IntN(8) == 0 {
		s.MaxKeys, s.Load.Keys = 1, 4
	}
	s.Load.Factor /= float64(s.Load.Keys)
	if !onRedisClock(s.Limit) && rng.IntN(4) == 0 { // leases in hand while the bucket fills, followed by a high demand
		s.Limit.Rate, s.Limit.Burst = rate+40, burst+40
		s.Load = Load{Factor: 150 / float64(rate+40), MaxCost: 1 + rng.Int64N(4)}
		s.Span = 3 * time.Second
		s.Faults = []Fault{{
			At: time.Duration(100+rng.IntN(300)) * time.Millisecond, Kind: PauseProcess, Process: -1,
			For: s.Limit.TimeToFull()/2 + time.Duration(rng.Int64N(int64(s.Limit.TimeToFull()))),
		}}
	}
	for range rng.IntN(4) {
		s.Faults = append(s.Faults, drawFault(rng, s))
	}
	return s
}

// drawLimit draws a limit of any algorithm, half of the time of a bucket.
func drawLimit(rng *rand.Rand, rate, burst int64) hybridlimit.Limit {
	window := []time.Duration{500, 1000, 1000, 2000}[rng.IntN(4)] * time.Millisecond
	switch rng.IntN(12) {
	case 0, 1:
		return hybridlimit.FixedWindow(rate, window)
	case 2, 3:
		return hybridlimit.SlidingWindow(rate, window)
	case 4:
		return hybridlimit.SlidingLog(rate, max(window, harvestEvery))
	case 5:
		return hybridlimit.LeakyQueue(rate, time.Second, burst)
	case 6:
		return hybridlimit.LeakyBucket(rate, time.Second, burst)
	}
	return hybridlimit.TokenBucket(rate, time.Second, burst)
}

var faultKinds = []FaultKind{
	LoseRequests, LoseReplies, Duplicate, LateReplies, Slow, PauseProcess, Crash, Leave, Join, ClockStep, Wipe, EvictKey,
	ScriptFlush, KillRedis, HangRedis,
}

func drawFault(rng *rand.Rand, s Scenario) Fault {
	f := Fault{
		At: time.Duration(rng.Int64N(int64(s.Span))), Kind: faultKinds[rng.IntN(len(faultKinds))],
		Process: rng.IntN(s.Processes+1) - 1, For: time.Duration(rng.Int64N(int64(time.Second))), P: 0.02 + 0.3*rng.Float64(),
	}
	switch f.Kind {
	case LateReplies:
		f.Size = time.Duration(rng.Int64N(int64([]time.Duration{10, 300}[rng.IntN(2)] * time.Millisecond)))
	case Slow:
		f.Size = time.Duration(rng.Int64N(int64([]time.Duration{4, 30}[rng.IntN(2)] * time.Millisecond)))
	case PauseProcess, HangRedis:
		if rng.IntN(2) == 0 {
			f.For /= 100 // no call waits too long
		}
	case ClockStep:
		f.Size = time.Duration(rng.Int64N(int64(6*time.Second))) - 3*time.Second
	case Leave:
		f.Process = max(f.Process, 0)
	}
	return f
}

// theorem returns the promise of DESIGN §8 for a scenario: the number of units by which a key may exceed its algorithm. ok is
// false if there is no promise for the scenario.
func theorem(s Scenario, r Report) (bound float64, ok bool) {
	rate := float64(s.Limit.Rate) / s.Limit.Period.Seconds()
	windows := onRedisClock(s.Limit)
	bound = rate/1e6 + float64(r.Dropped+r.Vague) // Redis counts whole µs; a crash loses units
	smallest, largest := s.Processes, s.Processes
	if s.Limit.Algorithm == hybridlimit.AlgLeakyQueue {
		bound += rate / 1e6 // a delay counts from the last whole µs and ends on one
		bound += rate * s.Latency.Seconds()
	}
	for _, f := range s.Faults {
		switch f.Kind {
		case Wipe, EvictKey, KillRedis, Mistype:
			return 0, false // Redis has lost data
		case Leave, Crash:
			smallest = 1
			largest++ // a process that starts again counts in addition to its former life
		case Join:
			largest++
		case ClockStep:
			switch {
			case windows: // processes spend a lease in the next window, in the belief that it is the current one
				bound += float64(s.Limit.Rate)
			case f.Size > 0: // Redis adds the refill of this time
				bound += rate * f.Size.Seconds()
				if s.Limit.Algorithm == hybridlimit.AlgLeakyQueue { // two calls may be served at the same time
					bound += float64(s.Load.MaxCost)
				}
			}
		}
	}
	if len(s.Faults) > 0 && !windows {
		bound += rate * maxWait.Seconds() // a grant may have been in flight for so long
	}
	if r.BySource[hybridlimit.SourceFallback] > 0 {
		return 0, false
	}
	var credit int64
	for n := int64(smallest); n <= int64(largest); n++ {
		credit = max(credit, s.credit(n))
	}
	return bound + float64(int64(largest-1)*credit), true
}

// credit returns C in a fleet of n.
func (s Scenario) credit(n int64) int64 {
	burst, others := s.Limit.BurstSize(), max(n-1, 1)
	switch {
	case s.asksAlways() || s.Limit.Algorithm == hybridlimit.AlgLeakyQueue:
		return 0
	case s.Kind == Deferred:
		return min(1000, burst/others)
	case s.Kind != Auto || s.Overshoot < 0:
		return 0
	case s.Overshoot == 0:
		return int64(0.05*float64(burst)) / others
	}
	return int64(s.Overshoot*float64(burst)) / others
}

// failure describes the error of a run; "" if there is none.
func failure(s Scenario, r Report) string {
	if len(r.Violated) > 0 {
		return strings.Join(r.Violated, "\n")
	}
	if bound, ok := theorem(s, r); ok && r.Exceedance > bound {
		return fmt.Sprintf("exceedance %.3f, want at most %.3f", r.Exceedance, bound)
	}
	return ""
}

// literal returns the scenario as Go code, for a table of cases.
func literal(s Scenario) string {
	return strings.NewReplacer("fleet.", "", "Algorithm:0x0, ", "").Replace(fmt.Sprintf("%#v", s))
}

// fewest removes the faults that are not needed for the failure.
func fewest(t *testing.T, s Scenario) Scenario {
	for i := 0; i < len(s.Faults); {
		less := s
		less.Faults = slices.Delete(slices.Clone(s.Faults), i, i+1)
		if failure(less, Run(t, less)) != "" {
			s = less
		} else {
			i++
		}
	}
	return s
}

// TestSeedsThatFailed runs random fleets in which TestTheorem found a defect.
func TestSeedsThatFailed(t *testing.T) {
	for seed, found := range map[uint64]string{
		287709306888:    "a process with a lease of the next window, from a late answer, asked for it again and again",
		2363446952209:   "a process crashed while a return was in flight, which Redis took back",
		279347676655694: "five processes granted a unit in the first µs of a window, and counted it in the window before",
		194707294717543: "a return that Redis applied before a wipe, and whose answer came too late, was missing in the accounts",
	} {
		s := draw(seed)
		if bad := failure(s, Run(t, s)); bad != "" {
			t.Errorf("HYBRIDLIMIT_SEED=%d: %s, as when %s", seed, bad, found)
		}
	}
}

// TestTheorem compares random fleets of real limiters on the real scripts with the bound and the accounts.
func TestTheorem(t *testing.T) {
	seed := testenv.Seed(t)
	var bounded, tight, unseen int
	var worst float64
	which := map[hybridlimit.Algorithm]int{}
	runs := testenv.Runs(50, 2000)
	for i := range runs {
		s := draw(seed + uint64(i))
		if i%5 == 0 {
			s.Neighbours = 20
		}
		if i%10 == 5 { // drawn apart, so that the seeds of before draw the same worlds
			s.Faults = append(s.Faults, Fault{At: s.Span / 2, Kind: Mistype, P: []float64{0, 0.2, 0.7}[i/10%3]})
		}
		r := Run(t, s)
		if bad := failure(s, r); bad != "" {
			small := fewest(t, s)
			t.Fatalf("HYBRIDLIMIT_SEED=%d: %s\nwith fewest faults:\n%s\n%s", s.Seed, bad, literal(small), failure(small, Run(t, small)))
		}
		if r.Debited < r.Accounts { // excused by Reborn, or by a process that gave up a sync with a return
			unseen++
		}
		if bound, ok := theorem(s, r); ok {
			bounded++
			which[s.Limit.Algorithm]++
			worst = max(worst, r.Exceedance)
			if r.Exceedance > bound/2 && bound > 1 {
				tight++
			}
		}
	}
	t.Logf("%d scenarios: %d within the theorem (%v), %d beyond half of the bound, largest exceedance %.2f; %d with debits that were not seen",
		runs, bounded, which, tight, worst, unseen)
	if unseen > runs/20 {
		t.Errorf("%d of %d scenarios had debits that were not seen", unseen, runs)
	}
	if bounded < runs/4 {
		t.Errorf("only %d of %d scenarios tested the bound", bounded, runs)
	}
}
