package main

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/meter"
)

// The promises that a run is held against (DESIGN: what the library says of
// itself in README and godoc, in figures).
const (
	maxWait    = 20 * time.Millisecond // the default of hybrid.Config
	slack      = 20 * time.Millisecond
	recovery   = 2 * time.Second
	idleEnough = 0.5              // the promises of time are for a machine that is no busier
	anyWait    = time.Second      // on a busier one: nobody waits out a time-out of go-redis, 3 s or more
	anyReturn  = 10 * time.Second // and everybody comes back
	openP99    = 10 * time.Microsecond
	overshoot  = 0.05    // the default of hybrid.Config
	heapSlope  = 0.05    // either way, from the second quarter of a soak to the last
	heapGrowth = 1 << 20 // what a client may keep after Close: pools of the runtime, no state
)

// violation is a promise that a run has broken.
type violation struct {
	kind string // one of the kinds below
	text string
}

const (
	brokeErrors     = "errors"
	brokeBound      = "bound"
	brokeAccounting = "accounting"
	brokeTwice      = "applied twice"
	brokeLatency    = "latency"
	brokeOpen       = "latency while open"
	brokeLiveness   = "liveness"
	brokeGrowth     = "growth"
	brokeTTL        = "ttl"
)

// verdict is what a check has found, the figures of the table included.
type verdict struct {
	violations []violation

	decisions, errors int64
	slowest           time.Duration // beyond the canary
	p99               time.Duration // while breakers were open; 0: none was
	shared, alone     reach         // of the key that came closest to its bound
	accounting        string
	recovered         time.Duration
}

// reach is how far above rate·t the worst interval came, and may.
type reach struct{ units, bound float64 }

func (v *verdict) found(kind, format string, args ...any) {
	v.violations = append(v.violations, violation{kind, fmt.Sprintf(format, args...)})
}

// check holds a run against the promises. strictly says that the figures of
// time for a quiet machine count; otherwise, only what the canary can excuse.
func check(e *evidence, strictly bool) *verdict {
	v := &verdict{}
	v.checkErrors(e)
	v.checkBound(e)
	v.checkAccounting(e)
	v.checkLatency(e)
	v.checkOpen(e, strictly)
	v.checkLiveness(e)
	v.checkGrowth(e)
	for _, key := range slices.Compact(slices.Sorted(slices.Values(e.eternal))) {
		v.found(brokeTTL, "%s has no TTL", key)
	}
	return v
}

func (v *verdict) checkErrors(e *evidence) {
	v.decisions, v.errors = e.decisions()
	if v.errors > 0 {
		text := ""
		for _, w := range e.clients {
			text += " " + w.last.Failed
		}
		v.found(brokeErrors, "%d of %d decisions returned an error:%s", v.errors, v.decisions, text)
	}
}

// checkBound compares, for every key, the worst interval of what was admitted
// with the fleet's bound, and of what fallbacks admitted with theirs.
func (v *verdict) checkBound(e *evidence) {
	n := int64(len(e.clients))
	others := max(n-1, 1)
	admissions := e.admissions()
	for i, s := range e.load.Streams {
		c := int64(overshoot*float64(s.Burst)) / others
		if e.allowed.alone {
			c *= others // a process that believes itself alone
		}
		shared := float64(s.Burst+(n-1)*c) + e.allowed.seconds*float64(s.Rate) + float64(e.allowed.bursts*s.Burst) +
			float64(min(e.allowed.units, s.Burst/2)) // a lease is no more than half of what there was
		// Each process its part; the fraction of a unit that a part may lack is
		// carried, so at most one each.
		alone := float64(s.Burst*max(e.allowed.parts, 1) + n)
		for key, as := range admissions {
			if int(key.stream) != i {
				continue
			}
			worst, bound, rate, who := &v.shared, shared, float64(s.Rate), "admitted"
			if key.fallback {
				worst, bound, rate, who = &v.alone, alone, float64(s.Rate*max(e.allowed.parts, 1)), "admitted by fallbacks"
			}
			units := meter.WorstSpan(as, rate)
			if worst.bound == 0 || units/bound > worst.units/worst.bound {
				*worst = reach{units, bound}
			}
			if units > bound {
				v.found(brokeBound, "key %s: %.0f units more than rate·t %s in an interval, at most %.0f may be",
					s.key(int(key.key)), units, who, bound)
			}
		}
	}
}

// checkAccounting compares what Redis has debited with what the clients know.
func (v *verdict) checkAccounting(e *evidence) {
	var known, fewer, more int64 // what is known, and what a crash may make of it
	crashed := false
	for i, w := range e.clients {
		s := w.last.Stats
		if got, want := s.Paid+s.Granted-s.Refunded, s.Admitted+s.Expired+s.Held+s.Lost-s.Owed-s.Dropped-s.Forgiven; got != want && !w.killed {
			v.found(brokeAccounting, "client %d: paid, granted and not refunded %d, but admitted, expired, held and lost, less owed, dropped and forgiven %d: %+v",
				i, got, want, s)
		}
		if !w.killed {
			known += s.Paid + s.Granted - s.Refunded
			if admitted := w.admitted(); admitted != s.Admitted {
				v.found(brokeAccounting, "client %d: callers were granted %d units, the limiter counts %d", i, admitted, s.Admitted)
			}
			if !w.last.Settled {
				v.found(brokeAccounting, "client %d: Shutdown could not settle: %s", i, w.last.Unsettled)
			}
			continue
		}
		// Of what its callers were granted, at most C units a key were never told;
		// of what it had been granted, at most a lease a key is wasted.
		crashed = true
		known += w.admitted() + s.Expired + s.Lost - s.Dropped - s.Forgiven - s.Refunded
		for _, s := range e.load.Streams {
			c := int64(overshoot*float64(s.Burst)) / int64(max(len(e.clients)-1, 1))
			fewer += c * int64(s.Keys)
			more += s.Burst / 2 * int64(s.Keys)
		}
	}
	lacks := e.sums.debited - known
	switch {
	case crashed:
		v.accounting = fmt.Sprintf("crash: %+d units of -%d to +%d", lacks, fewer, more)
		if lacks < -fewer || lacks > more {
			v.found(brokeAccounting, "Redis debited %d units, %d more than the clients know of, which is not within -%d and +%d",
				e.sums.debited, lacks, fewer, more)
		}
	case lacks != 0:
		v.accounting = fmt.Sprintf("%+d units", lacks)
		v.found(brokeAccounting, "Redis debited %d units, the clients know of %d", e.sums.debited, known)
	default:
		v.accounting = "to the unit"
	}
	if e.sums.forgotten > 0 {
		v.accounting += fmt.Sprintf("; %d lost by the failover", e.sums.forgotten)
	}
	if e.sums.again > 0 {
		v.accounting += fmt.Sprintf("; %d debited again", e.sums.again)
	}
	for _, t := range e.sums.twice {
		v.found(brokeTwice, "%s", t)
	}
}

// admitted is the units that callers of a client were granted.
func (w *witness) admitted() (units int64) {
	for _, r := range w.history {
		if r.kind == recordDecision && r.allowed {
			units += int64(r.units)
		}
	}
	return units
}

// checkLatency takes from each slow decision what the machine did to the
// canary meanwhile.
func (v *verdict) checkLatency(e *evidence) {
	most := maxWait + slack
	if e.cpu > idleEnough {
		most = anyWait
	}
	for i, w := range e.clients {
		naps := w.naps()
		for _, r := range w.history {
			if r.kind != recordDecision || r.took <= v.slowest {
				continue
			}
			beyond := r.took - noise(naps, r.begin, r.end())
			v.slowest = max(v.slowest, beyond)
			if beyond > most {
				v.found(brokeLatency, "client %d: a decision took %v, %v beyond the canary, at most %v may be: %+v",
					i, r.took, beyond, most, r)
			}
		}
	}
}

// noise is the most that a nap within an interval, or over its ends, overslept.
func noise(naps []record, from, to int64) (most time.Duration) {
	first := sort.Search(len(naps), func(i int) bool { return naps[i].end() >= from })
	for _, n := range naps[first:] {
		if n.begin > to {
			break
		}
		most = max(most, n.took-time.Millisecond)
	}
	return most
}

// checkOpen looks at decisions on warm keys while the breaker was open. The
// promise is for a machine that is half idle.
func (v *verdict) checkOpen(e *evidence, strictly bool) {
	if !e.single {
		return // of several breakers, which one is a key's?
	}
	var took []time.Duration
	for _, w := range e.clients {
		spans := w.open()
		for _, r := range w.history {
			if r.kind == recordDecision && r.warm && slices.ContainsFunc(spans, func(s [2]int64) bool { return r.begin > s[0] && r.end() < s[1] }) {
				took = append(took, r.took)
			}
		}
	}
	if len(took) < 100 {
		return // no percentile of so few
	}
	slices.Sort(took)
	v.p99 = took[len(took)*99/100]
	if v.p99 > openP99 && strictly && e.cpu <= idleEnough {
		v.found(brokeOpen, "p99 of %d decisions with the breaker open is %v, at most %v may be", len(took), v.p99, openP99)
	}
}

// checkLiveness wants each client back on the shared limit soon after the
// fault: a decision by it, all breakers closed, and most decisions by it from
// then on. (One that waited in vain on a busy machine is not an outage.)
func (v *verdict) checkLiveness(e *evidence) {
	most, busy := recovery, e.cpu > idleEnough
	if busy {
		most = anyReturn
	}
	for i, w := range e.clients {
		if w.killed {
			continue
		}
		first := int64(math.MaxInt64)
		var late, alone int
		for _, r := range w.history {
			if r.kind != recordDecision || r.begin < e.over {
				continue
			}
			switch r.source {
			case hybridlimit.SourceLease, hybridlimit.SourceCredit, hybridlimit.SourceRedis:
				first = min(first, r.begin)
			}
			if r.begin > e.back {
				late++
				if r.source == hybridlimit.SourceFallback {
					alone++
				}
			}
		}
		excused := noise(w.naps(), e.over, e.over+int64(recovery))
		closed := e.over
		for _, span := range w.open() {
			if busy && span[0] > e.over {
				break // a machine that starves Redis opens it again
			}
			if closed = max(closed, span[1]); span[1] == 0 {
				closed = math.MaxInt64
			}
		}
		if first == math.MaxInt64 || closed == math.MaxInt64 || !busy && (late == 0 || 2*alone > late) {
			v.found(brokeLiveness, "client %d: after the fault no decision by the shared limit, or a breaker open for good, or later %d of %d decisions by the fallback", i, alone, late)
			continue
		}
		took := time.Duration(max(first, closed) - e.over)
		if v.recovered = max(v.recovered, took); took > most+excused {
			v.found(brokeLiveness, "client %d: first decision by the shared limit %v after the fault, breakers closed %v after it, at most %v may be",
				i, time.Duration(first-e.over), time.Duration(closed-e.over), most)
		}
	}
}

func (v *verdict) checkGrowth(e *evidence) {
	for i, w := range e.clients {
		if w.killed {
			continue
		}
		r := w.last
		if r.Goroutines > r.Before {
			v.found(brokeGrowth, "client %d: %d goroutines before, %d after Close:\n%s", i, r.Before, r.Goroutines, r.Stacks)
		}
		if first, last, ok := halves(w.heap); ok && math.Abs(last/first-1) > heapSlope {
			v.found(brokeGrowth, "client %d: the heap was %.0f bytes in the second quarter of the run and %.0f in the last: %v", i, first, last, w.heap)
		}
		if r.Heap > r.HeapBefore+heapGrowth {
			v.found(brokeGrowth, "client %d: %d bytes before, %d after Close", i, r.HeapBefore, r.Heap)
		}
	}
}

// halves is the median of the second quarter of samples, when all has warmed
// up, and of the last.
func halves(samples []uint64) (first, last float64, ok bool) {
	quarter := len(samples) / 4
	if quarter < 3 {
		return 0, 0, false // too few to tell a slope
	}
	median := func(s []uint64) float64 { return float64(slices.Sorted(slices.Values(s))[len(s)/2]) }
	return median(samples[quarter : 2*quarter]), median(samples[len(samples)-quarter:]), true
}
