package main

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

// evidence is all data of a finished run.
type evidence struct {
	load     load
	single   bool // each client has one breaker; false on a cluster
	clients  []witness
	mode     hybrid.Mode
	struck   []int64 // ns on the shared clock: when each fault began or ended, in order; only in runs with several faults
	paused   int64   // when the first key was paused; 0: it was not
	border   int64   // the end of a day; 0: none
	hit      int64   // when the first fault began
	over     int64   // when the fault had ended and Redis took writes again
	back     int64   // when every client had had the time to come back
	sums     sums
	moments  []moment       // the quiet moments, in order
	returned time.Duration  // from the end of the load until no client held a unit
	eternal  []string       // keys without a TTL
	lost     map[string]int // the number of times that Redis lost the state of a key of the callers
	cpu      float64        // load of the machine while under load, 0 to 1
	allowed  allowance
}

// witness is the data of one client.
type witness struct {
	history []record
	last    report // of a killed client: just before the kill
	killed  bool
	heap    []uint64 // of a soak: bytes in use at intervals, under load
}

// allowance is the amount by which a fault may exceed the promises. The zero value permits nothing.
type allowance struct {
	// seconds of the rate that Redis may forget. It lost its memory, and no process knows the debits since the last
	// views of the others.
	seconds float64
	again   bool  // Redis loses states again and again: see evidence.forgets
	bursts  int64 // that Redis may give again because its clock has jumped forwards
	units   int64 // that a client held when it was frozen; it may spend them once
	steps   bool  // the clock of Redis steps
	alone   bool  // a process may believe that it is alone: it underestimates N
	full    bool  // Redis forgets buckets that have been full since, to which units may come back afterwards
}

// and combines two allowances.
func (a allowance) and(b allowance) allowance {
	return allowance{
		seconds: a.seconds + b.seconds, again: a.again || b.again, bursts: a.bursts + b.bursts, units: a.units + b.units,
		steps: a.steps || b.steps, alone: a.alone || b.alone, full: a.full || b.full,
	}
}

// forgets returns the seconds of its rate that Redis may forget of a key, when n processes use it. If Redis loses the key
// again and again, each loss counts. If it kept nothing, each process would have a bucket of its own meanwhile.
func (e *evidence) forgets(key string, n int64) float64 {
	if !e.allowed.again {
		return e.allowed.seconds
	}
	most := e.allowed.seconds + float64(n-1)*time.Duration(e.over-e.hit).Seconds()
	return min(e.allowed.seconds*float64(max(1, e.lost[key])), most)
}

// selected returns the records that are so.
func (w *witness) selected(is func(record) bool) iter.Seq[record] {
	return func(yield func(record) bool) {
		for _, r := range w.history {
			if is(r) && !yield(r) {
				return
			}
		}
	}
}

// of returns the records of a kind.
func (w *witness) of(kind recordKind) iter.Seq[record] {
	return w.selected(func(r record) bool { return r.kind == kind })
}

// during returns the records of the phase before m, and of the life of a lease before that.
func (w *witness) during(m *moment) iter.Seq[record] {
	return w.selected(func(r record) bool { return r.begin <= m.at && r.end() >= m.from-int64(leaseLife) })
}

// of returns the records of a kind, each with the number of its client.
func (e *evidence) of(kind recordKind) iter.Seq2[int, record] {
	return func(yield func(int, record) bool) {
		for i := range e.clients {
			for r := range e.clients[i].of(kind) {
				if !yield(i, r) {
					return
				}
			}
		}
	}
}

// count returns the number of records of a kind, and of those that failed.
func (e *evidence) count(kind recordKind) (all, failed int64) {
	for _, r := range e.of(kind) {
		if all++; r.failed {
			failed++
		}
	}
	return all, failed
}

// keyed is a key together with the side that admitted: fallbacks or the shared limit. The bound of fallbacks applies to
// each outage separately.
type keyed struct {
	stream   uint8 // the first with this key
	key      uint16
	fallback bool
	outage   int
}

// admissions returns the admissions by key and side.
func (e *evidence) admissions() map[keyed][]meter.Span {
	out := map[keyed][]meter.Span{}
	for _, r := range e.of(recordDecision) {
		if !r.allowed {
			continue
		}
		k := keyed{stream: e.load.first(r.stream), key: r.key, fallback: r.source == hybridlimit.SourceFallback}
		if k.fallback {
			k.outage, _ = slices.BinarySearch(e.struck, r.begin)
		}
		out[k] = append(out[k], r.span())
	}
	return out
}

func (r record) span() meter.Span {
	return meter.Span{Begin: r.begin, End: r.end(), Units: int64(r.units)}
}

// accounts returns N: the accounts that the fleet has for each key.
func (e *evidence) accounts() int64 { return int64(len(e.clients)) * e.load.accounts() }

// credit returns C of a limit.
func (e *evidence) credit(s stream) int64 {
	if e.mode == hybrid.ModeStrict {
		return 0
	}
	return int64(overshoot*float64(s.Burst)) / max(e.accounts()-1, 1)
}

// busy reports whether the machine was too busy for the promises about time.
func (e *evidence) busy() bool { return e.cpu > idleEnough }

// backAgain returns the time of a client's first decision by the shared limit after the fault, and the time since which
// its breakers are closed; math.MaxInt64: never.
func (e *evidence) backAgain(w *witness) (first, closed int64) {
	first, closed = math.MaxInt64, e.over
	for r := range w.of(recordDecision) {
		if r.begin < e.over {
			continue
		}
		switch r.source {
		case hybridlimit.SourceLease, hybridlimit.SourceCredit, hybridlimit.SourceRedis:
			first = min(first, r.begin)
		}
	}
	for _, span := range w.open() {
		if e.busy() && span[0] > e.over {
			break // a machine that starves Redis opens the breaker again
		}
		closed = max(closed, span[1])
	}
	return first, closed
}

// admitted returns the units that callers of a client were granted.
func (w *witness) admitted() (units int64) {
	for r := range w.of(recordDecision) {
		if r.allowed {
			units += int64(r.units)
		}
	}
	return units
}

func (w *witness) naps() []record { return slices.Collect(w.of(recordNap)) }

// open returns the spans in which a breaker of the client was open or half-open. On a cluster one such breaker is
// enough. If the last span has not ended, its end is math.MaxInt64.
func (w *witness) open() (spans [][2]int64) {
	unwell := 0
	for r := range w.of(recordBreaker) {
		was := unwell
		if breaker.State(r.key) != breaker.Closed {
			unwell--
		}
		if breaker.State(r.units) != breaker.Closed {
			unwell++
		}
		switch {
		case was == 0 && unwell > 0:
			spans = append(spans, [2]int64{r.begin, math.MaxInt64})
		case was > 0 && unwell == 0:
			spans[len(spans)-1][1] = r.begin
		}
	}
	return spans
}
