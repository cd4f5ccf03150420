package callfleet

import (
	"math"
	"math/rand/v2"
	"slices"
)

// call is one call. Times are ns since the start of the processes.
type call struct {
	at, lasts    int64
	key, process int
	done         bool // admitted or denied
}

// stream draws the calls of a fleet, in order. Its own times are ns since the start of the load.
type stream struct {
	s    Scenario
	rnd  *rand.Rand
	next float64 // ns; of the Poisson stream
	full []int64 // the times of the first calls: see begin
}

func newStream(s Scenario) *stream {
	l := &stream{s: s, rnd: rand.New(rand.NewPCG(s.Seed, 3))}
	l.begin()
	l.advance()
	return l
}

// begin draws calls for the first second, as many as run at once on average. The times of calls are exponential, so the
// rest of a running call is distributed as a whole one. Without these calls, a run with calls of ten minutes would need
// an hour until it is steady.
func (l *stream) begin() {
	n := int(math.Round(min(l.s.Load, 1) * float64(l.s.Limit) * float64(l.s.Keys)))
	for range n {
		l.full = append(l.full, l.rnd.Int64N(second))
	}
	slices.Sort(l.full)
}

func (l *stream) advance() { l.next += l.rnd.ExpFloat64() / l.s.rate() * float64(second) }

// take returns the next call. ok is false after the last one.
func (l *stream) take() (c *call, ok bool) {
	at := int64(l.next)
	if len(l.full) > 0 && l.full[0] <= at {
		at, l.full = l.full[0], l.full[1:]
	} else {
		l.advance()
	}
	if at >= int64(l.s.Span) {
		return nil, false
	}
	return &call{
		at: lead + at, lasts: int64(l.rnd.ExpFloat64() * float64(l.s.Lasts)), key: l.rnd.IntN(l.s.Keys), process: l.rnd.IntN(l.s.Processes),
	}, true
}
