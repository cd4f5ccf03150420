package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// load is a row of the table: calls at a part of what the permits allow.
type load struct {
	name    string
	procs   int
	keys    int // simulated
	permits int64
	call    float64 // mean duration of a call in seconds, exponential
	part    float64 // of permits/call
	span    float64 // simulated
}

func (l load) String() string { return fmt.Sprintf("%s %v s %v", l.name, l.call, l.part) }

// rate returns the calls a second.
func (l load) rate() float64 { return float64(l.keys) * float64(l.permits) / l.call * l.part }

// loads are the rows that the decision compares.
func loads() []load {
	var rows []load
	for _, fleet := range []load{
		{name: "10 × 1000", procs: 10, keys: 1, permits: 1000},
		{name: "100 × 1000", procs: 100, keys: 1, permits: 1000},
		{name: "40 × 20", procs: 40, keys: 1, permits: 20},
		{name: "50 000 keys × 1", procs: 40, keys: 500, permits: 1},
	} {
		for _, call := range []float64{0.05, 5, 30, 600} {
			for _, part := range []float64{0.5, 0.95} {
				row := fleet
				row.call, row.part = call, part
				row.span = max(6*call, min(60_000/row.rate(), 60*call), 10)
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// figures are the result of one row.
type figures struct {
	share    float64 // admitted, of what one central semaphore with the same patience admits
	messages float64 // per admission
	ops      float64
	waited   float64 // part of the admissions
	set      float64 // messages per admission of a sorted set: two, and one for each denial
	setShare float64
	most     int64 // most calls in flight at a key
	bytes    int   // of the state of a key, at the end
}

// measure runs one row.
func measure(r rules, l load, seed uint64) figures {
	r.procs, r.keys, r.permits = l.procs, l.keys, l.permits
	w := newWorld(r, seed)
	steady := l.span / 3
	var admitted, waited, offered, central, set, most int64
	type semaphore struct {
		used    int64
		waiting []float64
	}
	semaphores := make([]semaphore, l.keys)
	var finish func(s *semaphore)
	finish = func(s *semaphore) {
		for len(s.waiting) > 0 && s.waiting[0] < w.now {
			s.waiting = s.waiting[1:]
		}
		if len(s.waiting) == 0 {
			s.used--
			return
		}
		s.waiting = s.waiting[1:]
		if w.measuring {
			central++
		}
		w.after(w.exp(l.call), func() { finish(s) })
	}
	inFlight, inSet := make([]int64, l.keys), make([]int64, l.keys)
	var arrive func()
	arrive = func() {
		w.after(w.exp(1/l.rate()), arrive)
		key, p := w.rnd.IntN(l.keys), w.procs[w.rnd.IntN(l.procs)]
		duration, came := w.exp(l.call), w.now
		if w.measuring {
			offered++
		}
		if s := &semaphores[key]; s.used < l.permits {
			s.used++
			if w.measuring {
				central++
			}
			w.after(duration, func() { finish(s) })
		} else {
			s.waiting = append(s.waiting, w.now+r.maxWait)
		}
		w.after(w.delay(w), func() { // the sorted set decides at once, and hears of the end by a message
			if inSet[key] == l.permits {
				return
			}
			inSet[key]++
			if w.measuring {
				set++
			}
			w.after(w.delay(w)+duration+w.delay(w), func() { inSet[key]-- })
		})
		p.acquire(key, func() {
			inFlight[key]++
			most = max(most, inFlight[key])
			if w.measuring {
				admitted++
				if w.now > came {
					waited++
				}
			}
			w.after(duration, func() {
				inFlight[key]--
				p.release(key)
			})
		})
	}
	w.after(0, arrive)
	w.run(steady)
	w.measuring = true
	w.run(l.span)
	a := float64(max(1, admitted))
	return figures{
		share: float64(admitted) / float64(max(1, central)), messages: float64(w.messages) / a, ops: float64(w.ops) / a,
		waited: float64(waited) / a, set: 1 + float64(offered)/float64(max(1, set)), setShare: float64(set) / float64(max(1, central)),
		most: most, bytes: w.server.bytes(),
	}
}

// bytes returns the size of the state of the largest key, as text.
func (s *server) bytes() int {
	most := 0
	for _, g := range s.state.renewed {
		n := len(fmt.Sprintf("1c%x %x %x", int64(g.born*1e6), int64(s.w.now*1e6), int64(s.w.period*1e6)))
		for _, sum := range g.sums {
			n += len(fmt.Sprintf(" %x", sum))
		}
		most = max(most, n)
	}
	for _, h := range s.state.held {
		n := len(fmt.Sprintf("1c%x %x", int64(s.w.now*1e6), h.total))
		for _, b := range h.booked {
			n += len(fmt.Sprintf(" %08x %x %x", 0, b.permits, b.message))
		}
		most = max(most, n)
	}
	return most
}

// candidate is a column of the table.
type candidate struct {
	name string
	rules
}

func candidates() []candidate {
	rtt := func(*world) float64 { return 0.00025 }
	with := func(d design, period float64) rules {
		return rules{design: d, period: period, maxWait: 0.02, again: 0.02, delay: rtt}
	}
	return []candidate{
		{"renewals 1 s", with(renewals, 1)},
		{"renewals 10 s", with(renewals, 10)},
		{"members", with(members, 1)},
	}
}

// writeTable prints messages per admission for all rows.
func writeTable(out io.Writer, only string) {
	fmt.Fprintln(out, "| fleet | call | load | sorted set: messages, share | renewals 1 s: messages, ops | renewals 10 s | members | share: renewals 1 s, members | waited: renewals 1 s, members | bytes: renewals, members |")
	fmt.Fprintln(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, l := range loads() {
		if !strings.Contains(l.String(), only) {
			continue
		}
		var cells []string
		var last, first figures
		for i, c := range candidates() {
			f := measure(c.rules, l, 1)
			if f.most > l.permits {
				fmt.Fprintf(out, "%s has %d calls in flight\n", c.name, f.most)
			}
			cells = append(cells, fmt.Sprintf("%s, %s", short(f.messages), short(f.ops)))
			if i == 0 {
				first = f
			}
			last = f
		}
		fmt.Fprintf(out, "| %s | %v s | %v | %s, %.3f | %s | %.3f, %.3f | %.0f %%, %.0f %% | %d, %d |\n", l.name, l.call, l.part, short(last.set), last.setShare,
			strings.Join(cells, " | "), first.share, last.share, 100*first.waited, 100*last.waited, first.bytes, last.bytes)
	}
}

// short returns a number with three digits.
func short(x float64) string {
	switch {
	case x == 0 || math.IsNaN(x):
		return "0"
	case x < 1:
		return fmt.Sprintf("%.2g", x)
	default:
		return fmt.Sprintf("%.3g", x)
	}
}
