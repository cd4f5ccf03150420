package main

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/meter"
)

// evidence is all that is known of a run when it is over.
type evidence struct {
	load    load
	single  bool // one breaker says whether Redis is there
	clients []witness
	began   int64   // ns on the shared clock: the fault
	struck  []int64 // when a fault began or ended, where there were several, in order
	over    int64   // the fault had ended, and Redis took writes again
	back    int64   // and every client had had the time to come back
	sums    sums
	eternal []string // keys without a TTL
	cpu     float64  // of the machine, while under load: 0 to 1
	allowed allowance
}

// witness is what is known of one client.
type witness struct {
	history []record
	last    report // of one that was killed, just before
	killed  bool
	heap    []uint64 // of a soak: bytes in use now and then, under load
}

// allowance is what a fault may do to the promises. The zero value: nothing.
type allowance struct {
	// seconds of the rate that Redis may forget: it lost its memory, and what
	// was debited since the other processes' last views is in nobody's hands.
	seconds float64
	// bursts that Redis gives away: its clock has jumped forwards.
	bursts int64
	// units that a client held when it was frozen: it may spend them once.
	units int64
	// alone is that a process may believe itself alone: N underestimated.
	alone bool
	// parts is in how many times the limit fallbacks share. 0: once, each
	// process its part.
	parts int64
}

// and puts two allowances together.
func (a allowance) and(b allowance) allowance {
	return allowance{
		a.seconds + b.seconds, a.bursts + b.bursts, a.units + b.units, a.alone || b.alone, max(a.parts, b.parts),
	}
}

// keyed is a key, and by which side it was admitted. What fallbacks may admit
// they may in each outage: of several, each is by itself.
type keyed struct {
	stream   uint8
	key      uint16
	fallback bool
	outage   int
}

// admissions by key, and by fallbacks or the others.
func (e *evidence) admissions() map[keyed][]meter.Span {
	out := map[keyed][]meter.Span{}
	for _, w := range e.clients {
		for _, r := range w.history {
			if r.kind == recordDecision && r.allowed {
				k := keyed{stream: r.stream, key: r.key, fallback: r.source == hybridlimit.SourceFallback}
				if k.fallback {
					k.outage, _ = slices.BinarySearch(e.struck, r.begin)
				}
				out[k] = append(out[k], meter.Span{Begin: r.begin, End: r.end(), Units: int64(r.units)})
			}
		}
	}
	return out
}

// decisions counts calls, and those that failed.
func (e *evidence) decisions() (all, failed int64) {
	for _, w := range e.clients {
		for _, r := range w.history {
			if r.kind == recordDecision {
				all++
				if r.failed {
					failed++
				}
			}
		}
	}
	return all, failed
}

// syncs counts calls to Redis, and those that failed.
func (e *evidence) syncs() (all, failed int64) {
	for _, w := range e.clients {
		for _, r := range w.history {
			if r.kind == recordSync {
				all++
				if r.failed {
					failed++
				}
			}
		}
	}
	return all, failed
}

// naps is when the canary of a client overslept.
func (w *witness) naps() (out []record) {
	for _, r := range w.history {
		if r.kind == recordNap {
			out = append(out, r)
		}
	}
	return out
}

// open is the times at which a breaker of the client was open or probing: one
// of its breakers, on a cluster. The last may not have ended: then it has no
// second.
func (w *witness) open() (spans [][2]int64) {
	var from int64
	unwell := 0
	for _, r := range w.history {
		if r.kind != recordBreaker {
			continue
		}
		was := unwell
		if breaker.State(r.key) != breaker.Closed {
			unwell--
		}
		if breaker.State(r.units) != breaker.Closed {
			unwell++
		}
		switch {
		case was == 0 && unwell > 0:
			from = r.begin
		case was > 0 && unwell == 0:
			spans = append(spans, [2]int64{from, r.begin})
		}
	}
	if unwell > 0 {
		spans = append(spans, [2]int64{from, 0})
	}
	return spans
}

// ms for people.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
