package main

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
)

// The promises that a run is checked against. README and the godoc state them in words.
const (
	maxWait      = 20 * time.Millisecond // the default of hybrid.Config
	slack        = 20 * time.Millisecond
	recovery     = 2 * time.Second
	leasesReturn = 2 * time.Second
	idleEnough   = 0.5              // the promises about time hold on a machine that is no busier than this
	anyWait      = time.Second      // on a busier machine: below the time-outs of go-redis, which are 3 s or more
	anyReturn    = 10 * time.Second // on a busier machine: all clients are back by then
	openP99      = 10 * time.Microsecond
	overshoot    = 0.05    // the default of hybrid.Config
	heapSlope    = 0.05    // in either direction, from the second quarter of a soak to the last
	heapGrowth   = 1 << 20 // bytes that a client may keep after Close: pools of the runtime, no state
)

// within is a bound of time on a machine that is idle enough, and on a busier one.
type within struct{ idle, busy time.Duration }

// on returns the bound on a machine whose processors were busy for a part of the time, from 0 to 1.
func (w within) on(cpu float64) time.Duration {
	if cpu > idleEnough {
		return w.busy
	}
	return w.idle
}

var (
	decides   = within{maxWait + slack, anyWait}
	comesBack = within{recovery, anyReturn}               // a client, back to the shared limit
	settles   = within{5 * time.Second, 25 * time.Second} // after the load, until all owed units are told
	givesBack = within{leasesReturn, anyReturn}           // after the load, until no client holds a unit
)

// violation is a promise that a run has broken.
type violation struct{ kind, text string }

// MarshalText is for bench/chaos.json.
func (x violation) MarshalText() ([]byte, error) { return []byte(x.kind + ": " + x.text), nil }

// The kinds of violations.
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
	brokeBeside     = "neighbours"
)

// verdict is the result of a check. It is a row of bench/chaos.json, in which durations are ns.
type verdict struct {
	Broken          []violation `json:",omitempty"`
	CPU             float64     // load of the machine, with everything that ran on it, 0 to 1
	*figures                    // of a run with rates
	*callsFigures               // of a run with calls in flight
	*regionsFigures             // of a run with regions
}

// figures are those of a run with rates.
type figures struct {
	Decisions, Errors int64
	Slowest           time.Duration // decision, beyond the canary
	// P99 is that of decisions while a breaker was open, and Beside that of their canary. 0 means not measured.
	P99, Beside time.Duration `json:",omitempty"`
	open        openTimes
	// Shared is the reach by leases, credit and Redis, and Alone that by fallbacks, of the key closest to its bound.
	Shared, Alone reach
	// Accounting compares the debits of Redis with the units that the processes know. "Crash": Redis debited so many
	// units more than are known; the range after "of" is permitted. "Debited again": a batch was sent again because its
	// reply was lost, and meanwhile its key was gone. "Lost by the failover": debits of the old master that the new one
	// never had.
	Accounting string
	Losses     losses
	Reserve    reserve       `json:",omitzero"`
	Paused     time.Duration `json:",omitempty"` // from a pause of a key to the last unit in it; 0: there was no pause
	Recovered  time.Duration // from the end of the fault until the last process was back
}

// reach is the largest excess over rate·t in any interval, and its bound, in units.
type reach struct{ units, bound float64 }

// String returns the excess and its bound; "–": there was none.
func (r reach) String() string {
	if r.units == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f/%.0f", r.units, r.bound)
}

// MarshalText is for bench/chaos.json.
func (r reach) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// raise keeps the excess that is closer to its bound.
func (r *reach) raise(units, bound float64) {
	if r.bound == 0 || units/bound > r.units/r.bound {
		*r = reach{units, bound}
	}
}

// want adds a violation unless the promise is kept.
func (v *verdict) want(kept bool, kind, format string, args ...any) {
	if !kept {
		v.Broken = append(v.Broken, violation{kind, fmt.Sprintf(format, args...)})
	}
}

// check compares a run with the promises. strictly adds the promise about microseconds, which does not hold for a
// program with the race detector.
func check(e *evidence, strictly bool) *verdict {
	v := &verdict{CPU: benchkit.Round(e.cpu, 2), figures: &figures{}}
	v.checkErrors(e)
	v.checkBound(e)
	v.checkAccounting(e)
	v.checkQuiet(e)
	v.checkLatency(e)
	v.checkOpen(e, strictly)
	v.checkLiveness(e)
	v.checkGrowth(e)
	v.checkClasses(e)
	v.checkPause(e)
	v.checkNeighbours(e)
	for _, key := range slices.Compact(slices.Sorted(slices.Values(e.eternal))) {
		v.want(false, brokeTTL, "%s has no TTL", key)
	}
	return v
}

func (v *verdict) checkErrors(e *evidence) {
	v.Decisions, v.Errors = e.count(recordDecision)
	text := ""
	for _, w := range e.clients {
		text += " " + w.last.Failed
	}
	v.want(v.Errors == 0, brokeErrors, "%d of %d decisions returned an error:%s", v.Errors, v.Decisions, text)
}

// checkBound compares, for each key, the worst interval of all admissions with the bound of the fleet, and the worst
// interval of the admissions by fallbacks with the bound of fallbacks.
func (v *verdict) checkBound(e *evidence) {
	n := e.accounts()
	for key, spans := range e.admissions() {
		if e.load.days() {
			v.checkDays(e, key, spans)
			continue
		}
		s := e.load.Streams[key.stream]
		units := meter.WorstSpan(spans, float64(s.Rate))
		// Each process has its share. It carries the fraction of a unit that the share lacks, so it exceeds the share
		// by at most one unit.
		worst, bound, who := &v.Alone, float64(s.Burst+int64(len(e.clients))), "admitted by fallbacks"
		if !key.fallback {
			c := e.credit(s)
			if e.allowed.alone {
				c *= max(n-1, 1) // a process may believe that it is alone
			}
			worst, who = &v.Shared, "admitted"
			bound = float64(s.Burst+(n-1)*c) + e.forgets(s.key(int(key.key)), n)*float64(s.Rate) + float64(e.allowed.bursts*s.Burst) +
				float64(min(e.allowed.units, s.Burst/2)) // a lease is at most half of the level
		}
		worst.raise(units, bound)
		v.want(units <= bound, brokeBound, "key %s: %.0f units above rate·t %s in an interval, want at most %.0f",
			s.key(int(key.key)), units, who, bound)
	}
}

// checkAccounting compares the units that Redis debited with the units that the clients know of.
func (v *verdict) checkAccounting(e *evidence) {
	var known, fewer, more int64 // units that are known, and the deviations that a crash permits
	var uncertain int64          // units of messages without an envelope and without an answer
	crashed := false
	for i, w := range e.clients {
		s := w.last.Stats
		uncertain += s.Uncertain
		if w.killed {
			// At most C units a key of its admissions in each class were never reported, nor those of its fallback in
			// the fault. At most one lease a key of its grants is wasted.
			crashed = true
			known += w.admitted() + s.Expired + s.Lost - s.Dropped - s.Forgiven - s.Refunded
			for j, s := range e.load.Streams {
				if e.load.first(uint8(j)) == uint8(j) {
					fewer += e.credit(s) * e.load.accounts() * int64(s.Keys)
					more += s.Burst / 2 * int64(s.Keys)
				}
			}
			fewer += w.untold(e.hit, e.over)
			continue
		}
		known += s.Paid + s.Granted - s.Refunded
		v.checkBooks(brokeAccounting, fmt.Sprintf("at the end: client %d", i), standing{stats: s, admitted: w.admitted()})
		left := w.last.Unsettled
		v.want(left == "", brokeAccounting, "client %d: Shutdown could not settle: %s", i, left)
	}
	void := e.void()
	more += uncertain + void
	lacks := e.sums.debited - known
	switch {
	case crashed:
		v.Accounting = fmt.Sprintf("crash: %+d units of %d to +%d", lacks, -fewer, more)
	case lacks == 0:
		v.Accounting = "to the unit"
	case lacks > 0 && lacks <= more:
		v.Accounting = fmt.Sprintf("%+d units of %d uncertain", lacks, uncertain+void)
	default:
		v.Accounting = fmt.Sprintf("%+d units", lacks)
	}
	v.want(lacks >= -fewer && lacks <= more, brokeAccounting,
		"Redis debited %d units, %d more than the clients know of, want %d to +%d", e.sums.debited, lacks, -fewer, more)
	if e.sums.forgotten > 0 {
		v.Accounting += fmt.Sprintf("; %d lost by the failover", e.sums.forgotten)
	}
	if e.sums.again > 0 {
		v.Accounting += fmt.Sprintf("; %d debited again", e.sums.again)
	}
	for _, t := range e.sums.twice {
		v.want(false, brokeTwice, "%s", t)
	}
}

// void returns the most units that clients may have given back to a Redis that had lost or forgotten the debits: it
// takes back no more than it has debited. A client gives units back within a second.
func (e *evidence) void() (units int64) {
	for _, s := range e.load.Streams {
		if s.Estimate > 0 {
			units += e.load.demand(s) * int64(s.Keys*len(e.clients))
		}
	}
	seconds := e.allowed.seconds
	if e.allowed.full {
		seconds = max(seconds, 1)
	}
	return int64(seconds * float64(units))
}

// checkBooks compares the counts of a client with each other, and with what its callers were granted.
func (v *verdict) checkBooks(kind, who string, st standing) {
	s := &st.stats
	v.want(st.admitted == s.Admitted, kind, "%s: callers were granted %d units, the limiter counts %d",
		who, st.admitted, s.Admitted)
	got := s.Paid + s.Granted - s.Refunded
	v.want(got == st.known(), kind, "%s: paid + granted - refunded = %d, but it knows of %d: %+v",
		who, got, st.known(), *s)
}

// untold returns the units that the fallback of a killed client admitted in a fault that was over only after the end of
// the client. It could not repay them.
func (w *witness) untold(hit, over int64) (units int64) {
	for r := range w.of(recordDecision) {
		if r.begin >= over {
			return 0
		}
		if r.allowed && r.source == hybridlimit.SourceFallback && r.begin >= hit {
			units += int64(r.units)
		}
	}
	return units
}

// checkLatency subtracts from each slow decision the longest oversleep of the canary during the decision.
func (v *verdict) checkLatency(e *evidence) {
	most := decides.on(e.cpu)
	for i, w := range e.clients {
		naps := w.naps()
		for r := range w.of(recordDecision) {
			if r.took <= v.Slowest {
				continue
			}
			beyond := r.took - noise(naps, r.begin, r.end())
			v.Slowest = max(v.Slowest, beyond)
			v.want(beyond <= most, brokeLatency,
				"client %d: a decision took %v, %v more than the canary overslept, want at most %v: %+v",
				i, r.took, beyond, most, r)
		}
	}
}

// noise returns the longest oversleep of the naps that overlap an interval.
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

// checkOpen checks decisions on warm keys while the breaker was open: 99 of 100 take at most openP99. A machine that
// stops processes for a moment delays decisions too. The canary is calls of package local, which were made right behind
// these decisions and take about as long together. As many decisions as canaries are excused. A run has some hundred
// decisions, too few for a percentile: chance may add to them. checkOpen of page has the promise to the letter.
func (v *verdict) checkOpen(e *evidence, strictly bool) {
	if !e.single {
		return // a cluster has several breakers, and the breaker of a key is not known here
	}
	for _, w := range e.clients {
		spans := w.open()
		for r := range w.of(recordDecision) {
			during := func(s [2]int64) bool { return r.begin > s[0] && r.end() < s[1] }
			if r.warm && slices.ContainsFunc(spans, during) {
				v.open.took, v.open.beside = append(v.open.took, r.took), append(v.open.beside, r.beside)
			}
		}
	}
	o := &v.open
	o.sort()
	if len(o.took) < 100 {
		return
	}
	v.P99, v.Beside = o.took[len(o.took)*99/100], o.beside[len(o.beside)*99/100]
	slow, excused := over(o.took, openP99), over(o.beside, openP99)
	most := byChance(float64(len(o.took))/100 + float64(excused))
	v.want(!strictly || slow <= most, brokeOpen,
		"with the breaker open, %d of %d decisions took more than %v (p99 %v), want at most %d: one in a hundred, "+
			"%d because of the canary (p99 %v), and chance", slow, len(o.took), openP99, v.P99, most, excused, v.Beside)
}

// openTimes has the durations of decisions while a breaker was open, and those of their canaries.
type openTimes struct{ took, beside []time.Duration }

func (o *openTimes) sort() {
	slices.Sort(o.took)
	slices.Sort(o.beside)
}

// p99 returns the longest time that one in a hundred decisions exceeds, beyond as many as canaries do.
func (o *openTimes) p99() time.Duration {
	for _, t := range slices.Backward(o.took) {
		if over(o.took, t-1)-over(o.beside, t-1) > len(o.took)/100 {
			return t
		}
	}
	return 0
}

// byChance returns the largest number that chance makes of rare events, when mean are expected: one run in ten thousand
// has more, by Poisson. A soak expects thousands, so each term is computed by its logarithm.
func byChance(mean float64) int {
	upTo := 0.0
	for n := 0; mean > 0; n++ {
		factorial, _ := math.Lgamma(float64(n + 1))
		if upTo += math.Exp(float64(n)*math.Log(mean) - mean - factorial); upTo > 1-1e-4 {
			return n
		}
	}
	return 0
}

// over returns the number of times above most. The times are sorted.
func over(sorted []time.Duration, most time.Duration) int {
	at, _ := slices.BinarySearch(sorted, most+1)
	return len(sorted) - at
}

// checkLiveness checks that each client returns to the shared limit soon after the fault: it decides by the shared
// limit, its breakers are closed, and from then on it makes most decisions by the shared limit. (One decision that
// waited in vain on a busy machine is not an outage.)
func (v *verdict) checkLiveness(e *evidence) {
	most := comesBack.on(e.cpu)
	for i, w := range e.clients {
		if w.killed {
			continue
		}
		first, closed := e.backAgain(&w)
		var late, alone int
		for r := range w.of(recordDecision) {
			if r.begin <= e.back {
				continue
			}
			if late++; r.source == hybridlimit.SourceFallback {
				alone++
			}
		}
		if max(first, closed) == math.MaxInt64 || !e.busy() && (late == 0 || 2*alone > late) {
			v.want(false, brokeLiveness, "client %d: after the fault it made no decision by the shared limit, "+
				"or a breaker stayed open, or %d of %d later decisions were by the fallback", i, alone, late)
			continue
		}
		took, excused := time.Duration(max(first, closed)-e.over), noise(w.naps(), e.over, e.over+int64(recovery))
		v.Recovered = max(v.Recovered, took)
		v.want(took <= most+excused, brokeLiveness, "client %d: first decision by the shared limit %v after the fault, "+
			"breakers closed %v after it, want at most %v", i, time.Duration(first-e.over), time.Duration(closed-e.over), most)
	}
}

func (v *verdict) checkGrowth(e *evidence) {
	for i, w := range e.clients {
		if w.killed {
			continue
		}
		r := w.last
		v.want(r.Goroutines <= r.Before, brokeGrowth, "client %d: %d goroutines before, %d after Close:\n%s",
			i, r.Before, r.Goroutines, r.Stacks)
		first, last, ok := halves(w.heap)
		v.want(!ok || math.Abs(last/first-1) <= heapSlope, brokeGrowth,
			"client %d: the heap was %.0f bytes in the second quarter of the run and %.0f in the last: %v",
			i, first, last, w.heap)
		v.want(r.Heap <= r.HeapBefore+heapGrowth, brokeGrowth, "client %d: %d bytes before, %d after Close",
			i, r.HeapBefore, r.Heap)
	}
}

// halves returns the median of the second quarter of the samples, which is after the warm-up, and the median of the
// last quarter.
func halves(samples []uint64) (first, last float64, ok bool) {
	quarter := len(samples) / 4
	if quarter < 3 {
		return 0, 0, false // too few to tell a slope
	}
	median := func(s []uint64) float64 { return float64(slices.Sorted(slices.Values(s))[len(s)/2]) }
	return median(samples[quarter : 2*quarter]), median(samples[len(samples)-quarter:]), true
}

// checkNeighbours compares the other limiters of each hub, of every algorithm in every mode, with their promises.
func (v *verdict) checkNeighbours(e *evidence) {
	var fleet []neighbours.Report
	of := neighbours.World{Losses: int(math.Ceil(e.allowed.seconds)), Drops: e.allowed.seconds > 0}
	for _, w := range e.clients {
		if w.killed {
			of.Crashes, of.Drops = of.Crashes+1, true
		}
		fleet = append(fleet, w.last.Beside)
	}
	for _, broken := range neighbours.Check(of, fleet) {
		v.want(false, brokeBeside, "%s", broken)
	}
}
