package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// between adds up a part of the timeline.
func between(r Report, from, to time.Duration) (sum Sample) {
	for _, s := range r.Timeline {
		if s.At >= from && s.At < to {
			sum.Offered += s.Offered
			sum.Admitted += s.Admitted
			sum.Messages += s.Messages
		}
	}
	return sum
}

// TestFaults verifies the effect of each fault: the same run with it and without it.
func TestFaults(t *testing.T) {
	const ms = time.Millisecond
	// Each decision is a message, and there is enough for all calls.
	exact := Scenario{
		Seed: 2, Kind: RedisExact, Processes: 3, Limit: hybridlimit.TokenBucket(100, time.Second, 1000),
		Load: Load{Factor: 1}, Span: 1500 * ms, Latency: 1 * ms,
	}
	// Twice the limit, on leases and credit.
	auto := Scenario{
		Seed: 2, Kind: Auto, Processes: 3, Limit: hybridlimit.TokenBucket(100, time.Second, 50),
		Load: Load{Factor: 2}, Span: 1500 * ms, Latency: 1 * ms,
	}
	// Some units are owed at all times.
	deferred := auto
	deferred.Kind, deferred.Load.Factor, deferred.Interval = Deferred, 0.9, time.Second
	without := map[Kind]Report{}
	for _, c := range []struct {
		s    Scenario
		f    Fault
		mark func(base, r Report) bool
	}{
		{exact, Fault{Kind: LoseRequests, For: 400 * ms, P: 0.3}, func(base, r Report) bool {
			return r.BySource[hybridlimit.SourceFallback] > 0 && r.Debited == r.Accounts && r.Debited < base.Debited
		}},
		{exact, Fault{Kind: LoseReplies, For: 400 * ms, P: 0.3}, func(_, r Report) bool {
			return r.BySource[hybridlimit.SourceFallback] > 0 && r.Debited > r.Accounts
		}},
		{exact, Fault{Kind: Duplicate, For: 400 * ms, P: 0.3}, func(base, r Report) bool {
			return r.Debited > r.Accounts && r.Admitted == base.Admitted
		}},
		{exact, Fault{Kind: LateReplies, For: 400 * ms, P: 0.3, Size: 15 * ms}, func(base, r Report) bool {
			return r.Slowest > base.Slowest && r.Slowest <= 20*ms && r.Slowest > 10*ms
		}},
		{exact, Fault{Kind: Slow, For: 400 * ms, Size: 4 * ms}, func(_, r Report) bool { return r.Slowest >= 9*ms }},
		{exact, Fault{Kind: PauseProcess, Process: 1, For: 400 * ms}, func(base, r Report) bool {
			missing := between(base, 500*ms, 900*ms).Offered - between(r, 500*ms, 900*ms).Offered
			return missing > 5 && between(r, 1000*ms, 1500*ms).Offered == between(base, 1000*ms, 1500*ms).Offered
		}},
		{exact, Fault{Kind: PauseProcess, Process: -1, For: 400 * ms}, func(_, r Report) bool {
			return between(r, 600*ms, 900*ms).Offered == 0
		}},
		{exact, Fault{Kind: Crash, Process: 1, For: -1}, func(base, r Report) bool {
			return between(r, 600*ms, 1500*ms).Offered < between(base, 600*ms, 1500*ms).Offered && len(r.Acceptance) == 3
		}},
		{exact, Fault{Kind: Crash, Process: -1, For: 400 * ms}, func(_, r Report) bool {
			return between(r, 600*ms, 900*ms).Offered == 0 && between(r, 1000*ms, 1500*ms).Offered > 0
		}},
		{deferred, Fault{Kind: Crash, Process: -1, For: 400 * ms}, func(_, r Report) bool { return r.Dropped > 0 && r.Accounts < r.Units }},
		{auto, Fault{Kind: Leave, Process: -1}, func(_, r Report) bool {
			return between(r, 600*ms, 1500*ms).Offered == 0 && r.Dropped == 0 && r.Debited == r.Accounts
		}},
		{exact, Fault{Kind: Join}, func(base, r Report) bool { return r.Calls > base.Calls && len(r.Acceptance) == 4 }},
		{auto, Fault{Kind: ClockStep, Size: 300 * ms}, func(base, r Report) bool {
			return r.Exceedance > base.Exceedance+20 && r.Units > base.Units+20
		}},
		{auto, Fault{Kind: ClockStep, Size: -800 * ms}, func(base, r Report) bool { return r.Units < base.Units-50 }},
		{auto, Fault{Kind: Mistype}, func(base, r Report) bool { return r.Debited == r.Accounts && r.Heartbeats > 0 }},
		{auto, Fault{Kind: Wipe}, func(base, r Report) bool { return r.Debited == r.Accounts && r.Heartbeats > 0 }},
		{exact, Fault{Kind: EvictKey}, func(_, r Report) bool { return r.Debited == r.Accounts }},
		{exact, Fault{Kind: ScriptFlush}, func(base, r Report) bool {
			return r.Messages > base.Messages && r.Admitted == base.Admitted
		}},
		{exact, Fault{Kind: KillRedis, For: 400 * ms}, func(_, r Report) bool {
			return r.BySource[hybridlimit.SourceFallback] > 20 && r.Slowest < 20*ms
		}},
		{exact, Fault{Kind: HangRedis, For: 400 * ms}, func(_, r Report) bool {
			return r.BySource[hybridlimit.SourceFallback] > 20 && r.Slowest == 20*ms
		}},
	} {
		t.Run(string(c.f.Kind), func(t *testing.T) {
			base, ok := without[c.s.Kind]
			if !ok {
				base = Run(t, c.s)
				without[c.s.Kind] = base
			}
			c.f.At = 500 * ms
			c.s.Faults = []Fault{c.f}
			r := Run(t, c.s)
			if !c.mark(base, r) {
				t.Errorf("%+v left no mark:\n%+v\n%+v", c.f, base, r)
			}
			if len(base.Violated)+len(r.Violated) > 0 {
				t.Errorf("violated: %q and, with it, %q", base.Violated, r.Violated)
			}
		})
	}
}

// TestNaiveFaults runs the limiter without Redis through all faults.
func TestNaiveFaults(t *testing.T) {
	s := Scenario{
		Seed: 4, Kind: CountAndPush, Processes: 3, Limit: hybridlimit.PerSecond(200), Load: Load{Factor: 0.9, Keys: 3},
		Span: time.Duration(len(faultKinds)) * time.Second, Latency: time.Millisecond,
	}
	for i, k := range faultKinds {
		s.Faults = append(s.Faults, Fault{
			At: time.Duration(i) * time.Second, Kind: k, Process: i%4 - 1, For: 700 * time.Millisecond, Size: 5 * time.Millisecond,
		})
	}
	if r := Run(t, s); len(r.Violated) > 0 || r.Units == 0 || r.Messages == 0 {
		t.Errorf("%+v", r)
	}
}

// TestNaiveOutage verifies that count-and-push continues in an outage of any length, each process by the whole limit. After the
// outage it returns to its rate as soon as a burst for each process is repaid. Regression: units that were not pushed were
// subtracted from a full bucket again and again, so that it denied all calls after a burst.
func TestNaiveOutage(t *testing.T) {
	const n, rate, burst = 3, 100, 50
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(rate, time.Second, burst), hybridlimit.LeakyBucket(rate, time.Second, burst), hybridlimit.LeakyQueue(rate, time.Second, burst),
		hybridlimit.FixedWindow(rate, time.Second), hybridlimit.SlidingWindow(rate, time.Second), hybridlimit.SlidingLog(rate, time.Second),
	} {
		for _, fault := range []FaultKind{KillRedis, HangRedis} {
			for _, factor := range []float64{0.9, 9} { // of the limit; each process has a third of the load
				r := Run(t, Scenario{
					Seed: 4, Kind: CountAndPush, Processes: n, Limit: limit, Load: Load{Factor: factor}, Span: 20 * time.Second,
					Latency: time.Millisecond, Faults: []Fault{{At: 2 * time.Second, Kind: fault, Process: -1, For: 10 * time.Second}},
				})
				out, back := between(r, 4*time.Second, 12*time.Second), between(r, 16*time.Second, 20*time.Second)
				least, most := float64(out.Offered), float64(out.Offered)
				if factor > n {
					least, most = 0.95*8*n*rate, 1.05*8*n*rate
				}
				if got := float64(out.Admitted); got < least || got > most {
					t.Errorf("%v, %s, load %v: %v of %d in the outage, want %v to %v", limit, fault, factor, got, out.Offered, least, most)
				}
				if got, want := float64(back.Admitted), min(factor, 1)*4*rate; got < 0.85*want || got > 1.5*want {
					t.Errorf("%v, %s, load %v: %v of %d after it, want about %v", limit, fault, factor, got, back.Offered, want)
				}
			}
		}
	}
}

// Redis's clock continues after two steps that cancel each other. Regression: it stood still.
func TestStepThereAndBack(t *testing.T) {
	s := Scenario{
		Seed: 2, Kind: RedisExact, Processes: 2, Limit: hybridlimit.TokenBucket(100, time.Second, 10),
		Load: Load{Factor: 2}, Span: 2 * time.Second, Latency: time.Millisecond,
	}
	base := Run(t, s)
	for _, size := range []time.Duration{300 * time.Millisecond, -300 * time.Millisecond} {
		at := time.Duration(len(s.Faults)+1) * 300 * time.Millisecond
		s.Faults = append(s.Faults, Fault{At: at, Kind: ClockStep, Size: size})
	}
	if r := Run(t, s); math.Abs(float64(r.Units-base.Units)) > 35 {
		t.Errorf("%d units admitted, %d without the steps", r.Units, base.Units)
	}
}
