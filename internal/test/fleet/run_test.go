package fleet

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestKinds runs each kind at one and a half times its limit.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		kind           Kind
		least, most    float64 // utilisation
		excess         float64 // at most
		redis, waiting bool
	}{
		{Auto, 0.95, 1.02, 15, true, false}, // C is 5
		{Strict, 0.95, 1.02, 0.001, true, true},
		{Deferred, 0.95, 1.02, 300, true, false},
		{RedisExact, 0.999, 1.001, 0.001, true, true},
		{CentralExact, 1, 1, 0.001, false, false},
		{CountAndPush, 0.95, 1.1, 300, false, false},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			r := Run(t, Scenario{
				Seed: 1, Kind: c.kind, Processes: 4, Limit: hybridlimit.PerSecond(300), Latency: 500 * time.Microsecond,
				Span: 6 * time.Second, Steady: 3 * time.Second, Load: Load{Factor: 1.5},
			})
			if len(r.Violated) > 0 {
				t.Errorf("violated: %q", r.Violated)
			}
			if r.Utilisation < c.least || r.Utilisation > c.most || r.Exceedance > c.excess {
				t.Errorf("utilisation %.3f, want %v to %v; exceedance %.3f, at most %v", r.Utilisation, c.least, c.most, r.Exceedance, c.excess)
			}
			if r.Debited != r.Accounts || (r.Debited > 0) != c.redis || (r.Waited > 0) != c.waiting || r.Slowest > maxWait {
				t.Errorf("debited %d of %d, %d waited, the longest for %v", r.Debited, r.Accounts, r.Waited, r.Slowest)
			}
			if r.Jain < 0.97 || len(r.Acceptance) != 4 || len(r.Timeline) != 60 || (r.Messages > 0) != (c.kind != CentralExact) || r.Ops < r.Messages {
				t.Errorf("Jain %.3f, acceptance %v, %d samples, %d ops in %d messages", r.Jain, r.Acceptance, len(r.Timeline), r.Ops, r.Messages)
			}
			t.Logf("utilisation %.4f, exceedance %.1f, %d ops for %d calls, %d false denials", r.Utilisation, r.Exceedance, r.Ops, r.Calls, r.FalseDenials)
		})
	}
}

// TestAlgorithms runs each algorithm at twice its limit. The bound holds, the books balance to the unit, and the checks detect
// a limiter that admits more.
func TestAlgorithms(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.LeakyBucket(100, time.Second, 50), hybridlimit.LeakyQueue(100, time.Second, 25),
		hybridlimit.FixedWindow(100, time.Second), hybridlimit.SlidingWindow(100, time.Second), hybridlimit.SlidingLog(100, time.Second),
	} {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			s := Scenario{
				Seed: 1, Processes: 4, Limit: limit, Latency: 500 * time.Microsecond,
				// In a short span, the places of a queue that are taken at its end are a large part.
				Span: 5 * time.Second, Steady: time.Second, Load: Load{Factor: 2},
			}
			for kind, most := range map[Kind]float64{Auto: 1.1, Strict: 1.02, CentralExact: 1, CountAndPush: 1.4} {
				s.Kind = kind
				r := Run(t, s)
				if len(r.Violated) > 0 || r.Debited != r.Accounts || r.Vague > 10 {
					t.Errorf("%s: violated: %q; debited %d of %d; %d units are vague", kind, r.Violated, r.Debited, r.Accounts, r.Vague)
				}
				if r.Utilisation < 0.93 || r.Utilisation > most {
					t.Errorf("%s: utilisation %.3f, want 0.93 to %v", kind, r.Utilisation, most)
				}
				bound, _ := theorem(s, r)
				if free := kind == CountAndPush; free == (r.Exceedance <= bound) {
					t.Errorf("%s: exceedance %.3f, bound %.3f", kind, r.Exceedance, bound)
				}
			}
			s.Kind = Strict
			r := run(t, s, func(w *world) { w.mutant = everyFifth() })
			if bound, ok := theorem(s, r); !ok || r.Exceedance <= bound+5 {
				t.Errorf("a limiter that admits too much has an exceedance of %.1f, want more than the bound %.1f + 5", r.Exceedance, bound)
			}
		})
	}
}

// TestRushOfAFullBucket uses up a full bucket within three milliseconds on several processes. They admit nearly all of it.
func TestRushOfAFullBucket(t *testing.T) {
	for _, processes := range []int{4, 10} {
		for _, kind := range []Kind{Auto, Strict} {
			r := Run(t, Scenario{
				Seed: 1, Kind: kind, Processes: processes, Limit: hybridlimit.PerHour(1000), Latency: 500 * time.Microsecond,
				Warm: 5 * time.Second, Span: time.Second, Load: Load{Shape: Rush, Factor: 1, On: 3 * time.Millisecond, Off: 100 * time.Millisecond},
			})
			if len(r.Violated) > 0 || r.Utilisation < 0.88 {
				t.Errorf("%s over %d: utilisation %.3f, want at least 0.88; violated: %q", kind, processes, r.Utilisation, r.Violated)
			}
		}
	}
}

// TestTheLimitChanges halves and doubles the limit of a running fleet. It keeps each limit as soon as all processes have heard of it,
// and uses it up. The same admissions exceed the limits of a fleet that would have heard at once.
func TestTheLimitChanges(t *testing.T) {
	limit := func(n int64) hybridlimit.Limit { return hybridlimit.TokenBucket(n, time.Second, n/10) }
	s := Scenario{
		Seed: 1, Kind: Strict, Processes: 4, Limit: limit(1000), Latency: 500 * time.Microsecond, Span: 16 * time.Second,
		Changes: []Change{{5 * time.Second, limit(200)}, {10 * time.Second, limit(1000)}}, Load: Load{Factor: 2},
	}
	var w *world
	r := run(t, s, func(of *world) { w = of })
	if len(r.Violated) > 0 || r.Utilisation < 0.97 || r.Exceedance > 0.01 {
		t.Errorf("utilisation %.3f, exceedance %.2f, violated: %q", r.Utilisation, r.Exceedance, r.Violated)
	}
	for i := range w.s.Changes { // the fleet kept its old limit for longer
		w.s.Changes[i].At -= 2 * hearing
	}
	var early Report
	w.meter(&early, w.decisions())
	if early.Exceedance < 100 {
		t.Errorf("exceedance %.2f if the limits had changed earlier", early.Exceedance)
	}
}

// TestSeed runs one scenario twice. The calls are the same to the ns. The admissions may differ, because events at the same
// instant have no fixed order.
func TestSeed(t *testing.T) {
	s := Scenario{
		Seed: 7, Kind: Auto, Processes: 5, Limit: hybridlimit.TokenBucket(200, time.Second, 100), Overshoot: 0.2,
		Span: 2 * time.Second, Load: Load{Factor: 2, Keys: 3, KeyZipf: 1, MaxCost: 3, Zipf: 0.5}, Latency: 500 * time.Microsecond,
		Faults: []Fault{{At: 500 * time.Millisecond, Kind: LoseReplies, Process: -1, For: time.Second, P: 0.1}},
	}
	a, b := Run(t, s), Run(t, s)
	same := func(x, y Sample) bool { return x.Offered == y.Offered }
	if a.Calls != b.Calls || a.Central != b.Central || !slices.EqualFunc(a.Timeline, b.Timeline, same) {
		t.Errorf("one seed made %d and %d calls", a.Calls, b.Calls)
	}
	if d := math.Abs(float64(a.Units - b.Units)); d > 0.02*float64(a.Units) {
		t.Errorf("one seed admitted %d and %d units", a.Units, b.Units)
	}
	if s.Seed++; Run(t, s).Central == a.Central {
		t.Error("another seed makes the same calls")
	}
	t.Logf("units %d and %d, ops %d and %d, exceedance %.2f and %.2f", a.Units, b.Units, a.Ops, b.Ops, a.Exceedance, b.Exceedance)
}

// TestManyKeys has more keys than miniredis expires, calls with costs, and memory for a tenth of the keys.
func TestManyKeys(t *testing.T) {
	r := Run(t, Scenario{
		Seed: 3, Processes: 3, Limit: hybridlimit.TokenBucket(4, time.Second, 10), Latency: time.Millisecond, MaxKeys: 40,
		Span: time.Second, Load: Load{Factor: 0.3, Keys: 400, KeyZipf: 1.1, KeyLow: 0.1, KeyHigh: 5, MaxCost: 3},
	})
	if len(r.Violated) > 0 || r.Units == 0 {
		t.Errorf("%+v", r)
	}
}

// everyFifth is a limiter that admits every fifth denial.
func everyFifth() func(hybridlimit.Result) hybridlimit.Result {
	var denied atomic.Int64
	return func(res hybridlimit.Result) hybridlimit.Result {
		if !res.Allowed && denied.Add(1)%5 == 0 {
			res.Allowed = true
		}
		return res
	}
}

func (w *world) at(at time.Duration, do func()) { w.At(int64(at), do) }

// TestItCanFail breaks the conditions that Run checks, one at a time.
func TestItCanFail(t *testing.T) {
	s := Scenario{
		Seed: 1, Kind: Strict, Processes: 2, Limit: hybridlimit.PerSecond(50), Span: 2 * time.Second,
		Load: Load{Factor: 3}, Latency: 500 * time.Microsecond,
	}
	for _, c := range []struct {
		name, want string
		look       func(*world)
	}{
		{"nothing", "", func(*world) {}},
		{"admits too much", "callers were told", func(w *world) { w.mutant = everyFifth() }},
		{"a key without a TTL", "no TTL", func(w *world) {
			w.at(time.Second, func() { w.bubble.Mini.Set("hl:v2:{0}:api:stray", "x") })
		}},
		{"state lost unseen", "processes account for", func(w *world) {
			w.at(1500*time.Millisecond, func() { w.bubble.Mini.Del(w.ledger.names[0]) })
		}},
		{"debited twice", "processes account for", func(w *world) {
			w.at(1900*time.Millisecond, func() {
				raw, _ := w.bubble.Mini.Get(w.ledger.names[0])
				ttl := w.bubble.Mini.TTL(w.ledger.names[0])
				f := strings.Fields(raw)
				f[4] += "0" // ten times the debited units
				w.bubble.Mini.Set(w.ledger.names[0], strings.Join(f, " "))
				w.bubble.Mini.SetTTL(w.ledger.names[0], ttl)
			})
		}},
		{"a late decision", "took", func(w *world) { w.dawdle = 30 * time.Millisecond }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, s, c.look)
			all := strings.Join(r.Violated, "\n")
			if c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("violated: %q, want %q", all, c.want)
			}
			if bound, ok := theorem(s, r); c.name == "admits too much" && (!ok || r.Exceedance <= bound) {
				t.Errorf("exceedance %.1f, want more than the bound %.1f", r.Exceedance, bound)
			}
		})
	}
}

// A lease of a window lives as long as the window. Regression: it lived for one second like a lease of a bucket. A process with
// one or two calls per second sometimes lost a lease. For a window of a minute a fourteenth of the units was lost.
func TestWindowLeasesLast(t *testing.T) {
	r := Run(t, Scenario{
		Seed: 1, Kind: Strict, Processes: 10, Limit: hybridlimit.FixedWindow(200, 20*time.Second), Latency: 500 * time.Microsecond,
		Warm: 3 * time.Second, Span: 57 * time.Second, Steady: 17 * time.Second, Load: Load{Factor: 1.5},
	})
	if r.Utilisation < 0.99 || float64(r.Ops) > 0.9*float64(r.Admitted) || r.Exceedance > 0 {
		t.Errorf("utilisation %.3f, exceedance %v, %d ops for %d admitted", r.Utilisation, r.Exceedance, r.Ops, r.Admitted)
	}
}

// A sliding window far above its limit does not cause one request to Redis per call.
func TestSlidingWindowIsNotPolled(t *testing.T) {
	r := Run(t, Scenario{
		Seed: 1, Kind: Strict, Processes: 10, Limit: hybridlimit.SlidingWindow(100, time.Second), Latency: 500 * time.Microsecond,
		Span: 3 * time.Second, Steady: time.Second, Load: Load{Factor: 10},
	})
	if r.Utilisation < 0.97 || float64(r.Ops) > 2*float64(r.Admitted) || r.Exceedance > 0 {
		t.Errorf("utilisation %.3f, exceedance %v, %d ops for %d admitted", r.Utilisation, r.Exceedance, r.Ops, r.Admitted)
	}
}
