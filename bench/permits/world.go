package main

import (
	"container/heap"
	"math/rand/v2"
)

// design is one way to keep holdings alive.
type design string

const (
	renewals design = "renewals"
	members  design = "members"
)

// rules are the parameters of a run. Times are seconds.
type rules struct {
	design  design
	procs   int
	keys    int
	permits int64   // of each key
	period  float64 // of renewals: the length of a generation; of members: from heartbeat to heartbeat
	maxWait float64
	again   float64 // least time between two asks of a process for a key, and between two give-backs
	delay   func(*world) float64
	loss    float64 // part of the messages that are lost; the answer or the request
	double  float64 // part of the messages that Redis gets twice
	mutant  string  // a rule that is left out
}

// life is the time for which a process uses a holding after its last sign of life. Of renewals: Redis counts the holding for one
// period more. Of members: others take it off after as long.
func (r rules) life() float64 {
	if r.design == members {
		return 1.8 * r.period
	}
	return 2 * r.period
}

// margin is the time that a process stops before the end of its holdings, for the difference of two clocks' rates.
const margin = 0.02

// world is virtual time with the processes and the server in it.
type world struct {
	rules
	rnd    *rand.Rand
	now    float64
	events events
	count  uint64
	server *server
	procs  []*process

	everyEvent []func() // checks after each event

	messages, ops int64 // sent in the measured span
	measuring     bool
}

func newWorld(r rules, seed uint64) *world {
	w := &world{rules: r, rnd: rand.New(rand.NewPCG(seed, 1))}
	w.server = newServer(w)
	for i := range r.procs {
		w.procs = append(w.procs, newProcess(w, i))
	}
	return w
}

// at runs f at a time.
func (w *world) at(t float64, f func()) {
	w.count++
	heap.Push(&w.events, event{max(t, w.now), w.count, f})
}

func (w *world) after(d float64, f func()) { w.at(w.now+d, f) }

// run runs events until a time.
func (w *world) run(until float64) {
	for len(w.events) > 0 && w.events[0].t <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.t
		e.f()
		for _, check := range w.everyEvent {
			check()
		}
	}
	w.now = until
}

// call sends a request and brings its answer back. Either may be lost; the request may arrive twice.
func (w *world) call(request func() (answer func())) {
	times := 1
	if w.rnd.Float64() < w.double {
		times = 2
	}
	for range times {
		if w.rnd.Float64() < w.loss {
			continue
		}
		w.after(w.delay(w), func() {
			answer := request()
			if answer == nil || w.rnd.Float64() < w.loss {
				return
			}
			w.after(w.delay(w), answer)
		})
	}
}

func (w *world) exp(mean float64) float64 { return w.rnd.ExpFloat64() * mean }

// inFlight returns the calls in flight at a key, and those among them that are excused: see holding.over.
func (w *world) inFlight(key int) (calls, excused int64) {
	for _, p := range w.procs {
		if h := p.holdings[key]; h != nil {
			p.excuse(h)
			calls += h.used
			excused += h.over
		}
	}
	return calls, excused
}

type event struct {
	t float64
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
	*e = old[:len(old)-1]
	return x
}
