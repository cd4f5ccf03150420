package callfleet

import (
	"math/rand/v2"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/agenda"
)

const (
	second = int64(1_000_000_000)
	// lead is the time from the start of the processes to that of the load. In it, Redis learns each tag from its first
	// message.
	lead = 6 * second
	// drain is the time after the span in which the last calls are decided.
	drain = 2 * second
)

// subject is the limiter of a fleet in a world. It calls world.admit or world.deny once for each call.
type subject interface {
	acquire(c *call)
	release(c *call)
}

// world is a fleet in virtual time: ns since the start of the processes.
type world struct {
	agenda.Agenda

	s       Scenario
	rnd     *rand.Rand
	subject subject
	ledger  *ledger
}

// Run plays a scenario and returns the report. It fails the test only if the scenario cannot be played.
func Run(t *testing.T, s Scenario) Report {
	t.Helper()
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	if s.Kind == Limiter {
		return runLimiter(t, s)
	}
	w := &world{s: s, rnd: rand.New(rand.NewPCG(s.Seed, 1)), ledger: newLedger(s)}
	switch s.Kind {
	case Engine:
		w.subject = newEngine(w)
	case SortedSet:
		w.subject = &sortedSet{w: w, places: make([]int64, s.Keys)}
	case Central:
		w.subject = &central{w: w, keys: make([]semaphore, s.Keys)}
	default:
		t.Fatalf("callfleet: there is no kind %q", s.Kind)
	}
	return w.play()
}

// play runs all calls of the scenario.
func (w *world) play() Report {
	calls := newStream(w.s)
	var next func()
	next = func() {
		c, ok := calls.take()
		if !ok {
			return
		}
		w.At(c.at, func() {
			w.come(c)
			next()
		})
	}
	next()
	w.Run(lead + int64(w.s.Span) + int64(w.s.Wait) + drain)
	return w.ledger.total()
}

// come lets a call come.
func (w *world) come(c *call) {
	w.ledger.came(c)
	w.subject.acquire(c)
}

// admit lets a call run.
func (w *world) admit(c *call) {
	w.ledger.admitted(c, w.Now)
	w.After(c.lasts, func() {
		w.ledger.ended(c)
		w.subject.release(c)
	})
}

func (w *world) deny(c *call) { w.ledger.denied(c) }

// exchange sends a request to Redis, and brings its answer back.
func (w *world) exchange(request func() (answer func())) {
	there := int64(w.s.Latency / 2)
	w.After(there, func() {
		if answer := request(); answer != nil {
			w.After(int64(w.s.Latency)-there, answer)
		}
	})
}
