package callfleet

import (
	"container/heap"
	"math/rand/v2"
	"testing"
)

const (
	second = int64(1_000_000_000)
	// lead is the time from the start of the processes to that of the load. In it, Redis learns each tag from its first message.
	lead = 6 * second
	// drain is the time after the span in which the last calls are decided.
	drain = 2 * second
)

// subject is the limiter of a fleet in a world. It calls world.admit or world.deny once for each call.
type subject interface {
	acquire(c *call)
	release(c *call)
}

// world is virtual time: ns since the start of the processes, and the events in it.
type world struct {
	s       Scenario
	rnd     *rand.Rand
	now     int64
	events  events
	count   uint64
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
		w.at(c.at, func() {
			w.come(c)
			next()
		})
	}
	next()
	w.run(lead + int64(w.s.Span) + int64(w.s.Wait) + drain)
	return w.ledger.total()
}

// come lets a call come.
func (w *world) come(c *call) {
	w.ledger.came(c)
	w.subject.acquire(c)
}

// admit lets a call run.
func (w *world) admit(c *call) {
	w.ledger.admitted(c, w.now)
	w.after(c.lasts, func() {
		w.ledger.ended(c)
		w.subject.release(c)
	})
}

func (w *world) deny(c *call) { w.ledger.denied(c) }

// at runs f at a time.
func (w *world) at(t int64, f func()) {
	w.count++
	heap.Push(&w.events, event{max(t, w.now), w.count, f})
}

func (w *world) after(d int64, f func()) { w.at(w.now+d, f) }

// exchange sends a request to Redis, and brings its answer back.
func (w *world) exchange(request func() (answer func())) {
	there := int64(w.s.Latency / 2)
	w.after(there, func() {
		if answer := request(); answer != nil {
			w.after(int64(w.s.Latency)-there, answer)
		}
	})
}

// run runs events until a time.
func (w *world) run(until int64) {
	for len(w.events) > 0 && w.events[0].t <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.t
		e.f()
	}
}

// event is a function that runs at a time. Events of one time run in the order in which they were planned.
type event struct {
	t int64
	n uint64
	f func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].t < e[j].t || e[i].t == e[j].t && e[i].n < e[j].n }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	old[len(old)-1].f = nil
	*e = old[:len(old)-1]
	return x
}
