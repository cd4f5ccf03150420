package fleet

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The kinds under a limit of calls in flight, with [CentralExact]: one semaphore in one place, whose messages take no
// time. All get the same calls at the same times.
//
// Engine costs a few µs for a message. Limiter costs about 1 ms for a message, and as much for each second of each
// process, because its clock ticks. So Limiter is for short runs.
const (
	Engine    Kind = "engine"     // internal/permits, with Redis's side in Go (permitstest)
	Limiter   Kind = "limiter"    // hybrid.ConcurrencyLimiter, with the real scripts on miniredis
	SortedSet Kind = "sorted-set" // the messages and admissions of a sorted set in Redis: bench/rivals has the real one
)

// CallScenario is one run under a limit of calls in flight. No process ends, and no message is lost: internal/permits
// has the search with faults.
type CallScenario struct {
	Seed      uint64
	Kind      Kind
	Processes int
	Limit     int64         // calls of a key at once
	Keys      int           // equal in their load
	Lasts     time.Duration // of a call, on average; the times are exponential
	Load      float64       // calls that would run at once without a limit, as a part of the limits of all keys
	Wait      time.Duration // for which a call waits for a place at most
	Latency   time.Duration // a round trip to Redis: half in each direction
	Span      time.Duration // of the load
	Steady    time.Duration // the first part of the load, which the figures leave out
}

func (s CallScenario) validate() error {
	if s.Processes < 1 || s.Limit < 1 || s.Keys < 1 || s.Lasts <= 0 || s.Load <= 0 || s.Latency < 0 || s.Wait < 0 ||
		s.Steady < 0 || s.Span <= s.Steady {
		return errors.New("fleet: a number of the scenario is out of range")
	}
	return nil
}

// CallReport is the result of a run. The calls are those that came in the steady part, and the messages those that were
// sent in it.
type CallReport struct {
	Calls    int64
	Admitted int64
	Waited   int64         // of Admitted: those that took any time
	Half     time.Duration // the median wait of Waited
	Slow     time.Duration // the 99th percentile of it
	Messages int64         // without heartbeats and Renewals
	Renewals int64         // messages of the sorted set for calls that run
	Ops      int64         // one key each; a message carries up to 64
	Most     int64         // calls at once at a key, in the whole run
	Open     int64         // calls of the whole run that were neither admitted nor denied; above 0: an error of the simulation
}

const (
	second = int64(time.Second)
	// lead is the time from the start of the processes to that of the load. In it, Redis learns each tag from its first
	// message.
	lead = 6 * second
	// drain is the time after the span in which the last calls are decided.
	drain = 2 * second
)

// callLimiter is the limiter of a fleet in a world. It decides once about each call: callWorld.admit or deny.
type callLimiter interface {
	acquire(c *flight)
	release(c *flight)
}

// callWorld is a fleet in virtual time: ns since the start of the processes.
type callWorld struct {
	Agenda

	s       CallScenario
	rnd     *rand.Rand
	limiter callLimiter
	ledger  *callLedger
}

func newCallWorld(s CallScenario) *callWorld {
	ledger := &callLedger{from: lead + int64(s.Steady), until: lead + int64(s.Span), running: make([]int64, s.Keys)}
	return &callWorld{s: s, rnd: rand.New(rand.NewPCG(s.Seed, 1)), ledger: ledger}
}

// RunCalls plays a scenario and returns the report. It fails the test only if the scenario cannot be played.
func RunCalls(t *testing.T, s CallScenario) CallReport {
	t.Helper()
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	w := newCallWorld(s)
	switch s.Kind {
	case Engine:
		w.limiter = newEngine(w)
	case Limiter:
		synctest.Test(t, func(t *testing.T) {
			h := newHubs(t, w)
			w.limiter = h
			w.play()
			close(h.over)
			h.calls.Wait()
		})
		return w.ledger.total()
	case SortedSet:
		w.limiter = &sortedSet{w: w, places: make([]int64, s.Keys)}
	case CentralExact:
		w.limiter = &semaphores{w: w, keys: make([]semaphore, s.Keys)}
	default:
		t.Fatalf("fleet: there is no kind %q of calls in flight", s.Kind)
	}
	w.play()
	return w.ledger.total()
}

// play runs all calls of the scenario.
func (w *callWorld) play() {
	calls := newFlights(w.s)
	var next func()
	next = func() {
		if c := calls.take(); c != nil {
			w.At(c.at, func() {
				w.come(c)
				next()
			})
		}
	}
	next()
	w.Run(lead + int64(w.s.Span) + int64(w.s.Wait) + drain)
}

// teach makes a call for each key before the load, so that Redis learns each tag.
func (w *callWorld) teach() {
	for key := range w.s.Keys {
		w.At(2*second, func() { w.come(&flight{at: w.Now, key: key}) })
	}
}

// come lets a call come.
func (w *callWorld) come(c *flight) {
	w.ledger.came(c)
	w.limiter.acquire(c)
}

// deny ends a call that does not run.
func (w *callWorld) deny(c *flight) { w.ledger.decided(c, w.Now, false) }

// admit lets a call run.
func (w *callWorld) admit(c *flight) {
	w.ledger.decided(c, w.Now, true)
	w.After(c.lasts, func() {
		w.ledger.ended(c)
		w.limiter.release(c)
	})
}

// exchange sends a request to Redis, and brings its answer back.
func (w *callWorld) exchange(request func() (answer func())) {
	there := int64(w.s.Latency / 2)
	w.After(there, func() {
		if answer := request(); answer != nil {
			w.After(int64(w.s.Latency)-there, answer)
		}
	})
}

// flight is one call. Times are ns since the start of the processes.
type flight struct {
	at, lasts    int64
	key, process int
	done         bool // admitted or denied
}

// flights draws the calls of a fleet, in order. Its own times are ns since the start of the load.
type flights struct {
	s    CallScenario
	rnd  *rand.Rand
	next float64 // ns; of the Poisson stream
	// full has the times of the first calls, within a second: as many calls as run at once on average. The times of
	// calls are exponential, so the rest of a running call is distributed as a whole one. Without these calls, a run
	// with calls of ten minutes would need an hour until it is steady.
	full []int64
}

func newFlights(s CallScenario) *flights {
	l := &flights{s: s, rnd: rand.New(rand.NewPCG(s.Seed, 3))}
	for range int(math.Round(min(s.Load, 1) * float64(s.Limit) * float64(s.Keys))) {
		l.full = append(l.full, l.rnd.Int64N(second))
	}
	slices.Sort(l.full)
	l.advance()
	return l
}

func (l *flights) advance() {
	perSecond := l.s.Load * float64(l.s.Limit) * float64(l.s.Keys) / l.s.Lasts.Seconds()
	l.next += l.rnd.ExpFloat64() / perSecond * float64(second)
}

// take returns the next call. It returns nil after the last one.
func (l *flights) take() *flight {
	at := int64(l.next)
	if len(l.full) > 0 && l.full[0] <= at {
		at, l.full = l.full[0], l.full[1:]
	} else {
		l.advance()
	}
	if at >= int64(l.s.Span) {
		return nil
	}
	return &flight{
		at: lead + at, lasts: int64(l.rnd.ExpFloat64() * float64(l.s.Lasts)),
		key: l.rnd.IntN(l.s.Keys), process: l.rnd.IntN(l.s.Processes),
	}
}
