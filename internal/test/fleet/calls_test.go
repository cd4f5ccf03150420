package fleet

import (
	"math"
	"testing"
	"time"
)

// small is a fleet of four processes with ten calls at once.
func small(kind Kind, load float64) CallScenario {
	return CallScenario{
		Seed: 1, Kind: kind, Processes: 4, Limit: 10, Keys: 1, Lasts: 50 * time.Millisecond, Load: load, Wait: 20 * time.Millisecond,
		Latency: 500 * time.Microsecond, Span: 4 * time.Second, Steady: time.Second,
	}
}

// TestKindsOfCalls runs each kind below and above its limit. All get the same calls, and none admits more at once than the limit.
func TestKindsOfCalls(t *testing.T) {
	for _, load := range []float64{0.5, 1.5} {
		calls := RunCalls(t, small(CentralExact, load)).Calls
		for _, kind := range []Kind{Engine, Limiter, SortedSet, CentralExact} {
			r := RunCalls(t, small(kind, load))
			if r.Calls != calls || r.Open != 0 || r.Admitted == 0 || r.Admitted > r.Calls || r.Waited > r.Admitted || r.Half > r.Slow {
				t.Errorf("%s, load %v: %+v of %d calls", kind, load, r, calls)
			}
			if r.Most > 10 || load > 1 && r.Most < 10 {
				t.Errorf("%s, load %v: %d calls at once of 10", kind, load, r.Most)
			}
			if (r.Messages > 0) != (kind != CentralExact) || r.Ops < r.Messages {
				t.Errorf("%s, load %v: %d ops in %d messages", kind, load, r.Ops, r.Messages)
			}
		}
	}
}

// TestEqualRuns checks that a run of virtual time depends on its seed alone.
func TestEqualRuns(t *testing.T) {
	for _, kind := range []Kind{Engine, SortedSet, CentralExact} {
		s := small(kind, 0.95)
		first := RunCalls(t, s)
		if again := RunCalls(t, s); first != again {
			t.Errorf("%s: %+v, and then %+v", kind, first, again)
		}
		s.Seed = 2
		if other := RunCalls(t, s); first == other {
			t.Errorf("%s: two seeds give %+v", kind, first)
		}
	}
}

// TestCallsOfTheSortedSet checks the messages: one for each call, and one more for each end.
func TestCallsOfTheSortedSet(t *testing.T) {
	s := small(SortedSet, 1.5)
	s.Steady = 0
	r := RunCalls(t, s)
	running := float64(r.Calls+r.Admitted) - float64(r.Messages) // at the end of the span
	if running < 0 || running > 10 {
		t.Errorf("%+v", r)
	}
}

// TestCentralIsAQueue compares the semaphore without patience with Erlang's formula for the part that is denied.
func TestCentralIsAQueue(t *testing.T) {
	s := small(CentralExact, 0.95)
	s.Wait, s.Span = 0, 400*time.Second
	r := RunCalls(t, s)
	load, denied := 0.95*10, 1.0
	for i := 1.0; i <= 10; i++ {
		denied = load * denied / (i + load*denied)
	}
	if got := float64(r.Calls-r.Admitted) / float64(r.Calls); math.Abs(got-denied) > 0.01 {
		t.Errorf("%.4f denied, want %.4f", got, denied)
	}
}

// TestStartIsSteady checks that long calls run from the start of the load on, as many as on average.
func TestStartIsSteady(t *testing.T) {
	s := small(CentralExact, 0.5)
	s.Limit, s.Lasts, s.Steady, s.Span = 1000, 600*time.Second, 0, 2*time.Second
	if r := RunCalls(t, s); r.Most < 480 || r.Most > 520 {
		t.Errorf("%d calls run at once after 2 s, want 500", r.Most)
	}
}

// open is a limiter that admits all calls.
type open struct{ w *callWorld }

func (o open) acquire(c *flight) { o.w.admit(c) }
func (open) release(*flight)     {}

// lost is a limiter that forgets calls.
type lost struct{}

func (lost) acquire(*flight) {}
func (lost) release(*flight) {}

// TestBrokenLimitersAreSeen plays a limiter without a limit, and one that decides nothing.
func TestBrokenLimitersAreSeen(t *testing.T) {
	s := small("", 1.5)
	play := func(subject func(*callWorld) callLimiter) CallReport {
		w := newCallWorld(s)
		w.limiter = subject(w)
		w.play()
		return w.ledger.total()
	}
	if r := play(func(w *callWorld) callLimiter { return open{w} }); r.Most <= 10 {
		t.Errorf("%d calls at once without a limit", r.Most)
	}
	if r := play(func(*callWorld) callLimiter { return lost{} }); r.Open == 0 || r.Admitted > 0 {
		t.Errorf("%+v without a decision", r)
	}
}

func TestCallScenariosAreChecked(t *testing.T) {
	if err := small(Engine, 1).validate(); err != nil {
		t.Error(err)
	}
	for _, spoil := range []func(*CallScenario){
		func(s *CallScenario) { s.Processes = 0 }, func(s *CallScenario) { s.Limit = 0 }, func(s *CallScenario) { s.Keys = 0 },
		func(s *CallScenario) { s.Lasts = 0 }, func(s *CallScenario) { s.Load = 0 }, func(s *CallScenario) { s.Span = s.Steady },
	} {
		s := small(Engine, 1)
		if spoil(&s); s.validate() == nil {
			t.Errorf("%+v is valid", s)
		}
	}
}
