package main

import (
	"fmt"
	"io"
)

// fault is something that happens in a schedule, beside crashes, pauses, and lost, doubled and late messages.
type fault string

const (
	noFault    fault = "none"
	wiped      fault = "wipe"
	evicted    fault = "eviction of one key"
	failedOver fault = "failover to a replica that is behind"
	stepped    fault = "Redis's clock steps by 5 s"
)

var faults = []fault{noFault, wiped, evicted, failedOver, stepped}

// excess returns the calls above the permits, without those that outlive a cut-off of their process.
func (w *world) excess(key int) int64 {
	calls, excused := w.inFlight(key)
	return calls - excused - w.permits
}

// outcome is the result of one schedule.
type outcome struct {
	excess   int64 // most calls in flight above the permits, without those that outlive a cut-off of their process
	admitted int64
}

// schedule runs one random fleet with one kind of fault.
func schedule(d design, f fault, mutant string, seed uint64) outcome {
	r := rules{
		design: d, period: 1, maxWait: 0.3, again: 0.02, loss: 0.1, double: 0.1, mutant: mutant, keys: 2,
		delay: func(w *world) float64 {
			switch x := w.rnd.Float64(); {
			case x < 0.7:
				return 0.02 * w.rnd.Float64()
			case x < 0.97:
				return 0.4 * w.rnd.Float64()
			default:
				return 3 * w.rnd.Float64()
			}
		},
	}
	draw := newWorld(r, seed).rnd
	r.procs, r.permits = 2+draw.IntN(4), 2+draw.Int64N(11)
	w := newWorld(r, seed)
	const span = 25
	var o outcome
	call := []float64{0.1, 0.6, 0.6, 8}[draw.IntN(4)]
	rate := (0.5 + 1.5*draw.Float64()) * float64(r.permits) / call
	for i, p := range w.procs {
		var arrive func()
		arrive = func() {
			if p.gone {
				return
			}
			w.after(w.exp(float64(r.procs*r.keys)/rate/2), arrive)
			p.later(func() {
				key := w.rnd.IntN(r.keys)
				p.acquire(key, func() {
					o.admitted++
					w.after(w.exp(call), func() {
						if !p.gone {
							p.later(func() { p.release(key) })
						}
					})
				})
			})
		}
		w.after(draw.Float64()*0.3, arrive)
		if i > 0 && draw.Float64() < 0.3 {
			w.at(3+draw.Float64()*15, p.kill)
		}
		if draw.Float64() < 0.3 {
			pause := []float64{0.5, 2.5, 5, 12}[draw.IntN(4)]
			w.at(3+draw.Float64()*15, func() { p.frozen = w.now + pause })
		}
	}
	when := 3 + draw.Float64()*12
	switch f {
	case wiped:
		w.at(when, w.server.wipe)
	case evicted:
		w.at(when, func() { w.server.evict(0) })
	case failedOver:
		w.at(when-0.3*draw.Float64(), w.server.replicate)
		w.at(when, w.server.failOver)
	case stepped:
		w.at(when, func() { w.server.step = 5 })
	}
	for key := range r.keys {
		w.everyEvent = append(w.everyEvent, func() {
			o.excess = max(o.excess, w.excess(key))
		})
	}
	w.run(span)
	return o
}

// kill ends a process and its calls.
func (p *process) kill() {
	p.gone = true
	for _, h := range p.holdings {
		h.used, h.waiting = 0, nil
	}
}

// tally is the result of many schedules.
type tally struct {
	schedules, broke int
	worst            int64
	first            uint64
	admitted         int64
}

func search(d design, f fault, mutant string, n int) tally {
	t := tally{schedules: n}
	for seed := range uint64(n) {
		o := schedule(d, f, mutant, seed)
		t.admitted += o.admitted
		if o.excess > 0 {
			if t.broke == 0 {
				t.first = seed
			}
			t.broke++
			t.worst = max(t.worst, o.excess)
		}
	}
	return t
}

// mutant is a rule of a design that is left out, and the fault that shows it.
type mutant struct {
	design design
	rule   string
	fault  fault
	means  string
}

var mutants = []mutant{
	{members, "envelope", noFault, "a message takes effect once, and not after its successor"},
	{members, "give", noFault, "a process does not use what it gives back while the answer is on its way"},
	{members, "late", noFault, "a process whose heartbeats are too old admits nothing new"},
	{members, "look", noFault, "a holder is dead only if its heartbeat did not change for as long as a holding lives"},
	{members, "learn", wiped, "after a loss, nothing is granted until all could tell their holdings"},
	{members, "gap", failedOver, "a process whose last message is missing in Redis tells of a loss"},
	{members, "tell", wiped, "all processes tell their holdings after a loss"},
	{renewals, "envelope", noFault, "a message takes effect once"},
	{renewals, "give", noFault, "a process does not use what it gives back while the answer is on its way"},
	{renewals, "answer", noFault, "a holding lives from the sending of its renewal, not from the answer"},
	{renewals, "learn", wiped, "after a loss, nothing is granted until all could tell their holdings"},
	{renewals, "gap", failedOver, "a process whose last message is missing in Redis tells of a loss"},
	{renewals, "born", evicted, "a holding of a state that was lost is not taken off its successor"},
}

// writeSearch prints how many schedules broke the bound, and by how many calls at most.
func writeSearch(out io.Writer, n int) {
	fmt.Fprintf(out, "| fault | renewals: schedules of %d above the permits, by at most | members |\n|---|--:|--:|\n", n)
	for _, f := range faults {
		r, m := search(renewals, f, "", n), search(members, f, "", n)
		fmt.Fprintf(out, "| %s | %d, %d | %d, %d |\n", f, r.broke, r.worst, m.broke, m.worst)
	}
	fmt.Fprintf(out, "\n| design | without the rule | fault | above | by at most | first seed |\n|---|---|---|--:|--:|--:|\n")
	for _, m := range mutants {
		t := search(m.design, m.fault, m.rule, n)
		fmt.Fprintf(out, "| %s | %s | %s | %d | %d | %d |\n", m.design, m.means, m.fault, t.broke, t.worst, t.first)
	}
}

// freeAfter returns the seconds after which the permits of a killed process, which held all, run other calls. Others ask for
// them all the time.
func freeAfter(r rules, seed uint64) float64 {
	r.procs, r.keys, r.permits = 10, 1, 100
	w := newWorld(r, seed)
	killed := 8 + w.rnd.Float64()
	for range r.permits {
		w.at(2+w.rnd.Float64(), func() { w.procs[0].acquire(0, func() {}) })
	}
	w.at(killed, w.procs[0].kill)
	for _, p := range w.procs[1:] {
		var arrive func()
		arrive = func() {
			w.after(w.exp(0.02), arrive)
			p.acquire(0, func() {})
		}
		w.at(6, arrive)
	}
	var free float64
	w.everyEvent = append(w.everyEvent, func() {
		if calls, _ := w.inFlight(0); free == 0 && w.now > killed && calls == r.permits {
			free = w.now
		}
	})
	w.run(killed + 10*r.period)
	return free - killed
}

// writeFree prints the longest time of many kills.
func writeFree(out io.Writer, n int) {
	for _, c := range candidates() {
		longest := 0.0
		for seed := range uint64(n) {
			longest = max(longest, freeAfter(c.rules, seed))
		}
		fmt.Fprintf(out, "%s: all permits of a killed process are used again after %.1f s at most in %d kills\n", c.name, longest, n)
	}
}
