package fleet

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
)

// The kinds of a hot key. Leases are the accounts that package hybrid has for a key, with Redis's arithmetic in Go.
// Their hubs have a breaker and time-outs. RateLeases are those of the product, without a breaker. Drop ratios are a
// rival of the literature: see hotratio.go.
const (
	Leases          Kind = "leases"
	ShortLeases     Kind = "short-leases" // with a MaxLease of a second
	DropRatio       Kind = "drop-ratio"
	DropRatioCapped Kind = "drop-ratio-capped"
	RateLeases      Kind = "rate-leases"
)

// HotScenario is one key in a fleet of up to ten thousand processes. Nothing is lost, and no process ends. All processes
// start with the load.
type HotScenario struct {
	Kind      Kind
	Seed      uint64
	Processes int
	Limit     hybridlimit.Limit // a token bucket
	Load      float64           // calls per unit of the rate; Poisson
	Step      time.Duration     // until then, the load is 0.5
	Zipf      float64           // the parts of the processes are 1/i^Zipf, in a random order; 0: even
	Latency   time.Duration     // a round trip to Redis: half in each direction
	RedisOp   time.Duration     // the time of a message in Redis, which runs one at a time
	Batch     int               // number of ops in a message, with those of other keys; 0: 1
	Parts     int               // of a split key, of Leases: each has a Redis of its own; 0: the key is whole
	Dies      time.Duration     // from then on, the last part's Redis does not answer; 0: never
	Sized     bool              // processes know N from the start, as with HubConfig.FleetSize
	Span      time.Duration
	Steady    time.Duration // the first part, which the steady figures leave out
}

// HotReport has the results of a run. Figures are of the steady part unless stated otherwise.
type HotReport struct {
	Processes int
	Seconds   float64
	Calls     int64
	Admitted  int64
	Central   int64   // units that one bucket without a network admits
	Excess    float64 // units above Burst + rate·t; of the whole run
	Ops       int64
	Peak      float64 // ops per process in the busiest second of the whole run
	Low, High float64 // least and most units in one second, of the rate; from the fourth second after Step or Steady on
	Jain      float64 // of the processes
	// Acceptance is the admitted part of the calls of each process with calls, the one with the largest demand first.
	Acceptance []float64
	Waits      int64   // calls that did not get their answer at once
	Away       int64   // calls that were decided without Redis, from five seconds after the start or Step on
	AwayOf     int64   // calls in that time
	Tenths     []int64 // units admitted in each tenth of a second of the whole run
	OpsOf      []int64 // Ops of each part of a split key
	Moves      int     // of processes to another part, in the whole run
}

// hotLimiter decides the calls of one key in all processes. It tells each admission by hotWorld.admit.
type hotLimiter interface{ call(process int) }

type hotWorld struct {
	Agenda // ns since the start

	s       HotScenario
	rnd     *rand.Rand // of the limiter
	meter   *meter.Bucket
	redis   hotServer // of a key that is whole
	seconds []int64   // ops
	asked   []int64   // calls by process, of the steady part
	granted []int64
	order   []int // of processes by demand
	report  HotReport
}

// RunHot plays a scenario. It fails the test only if the scenario cannot be played.
func RunHot(t testing.TB, s HotScenario) HotReport {
	t.Helper()
	if s.Processes < 1 || s.Load <= 0 || s.Span <= s.Steady || s.Limit.Algorithm != hybridlimit.AlgTokenBucket {
		t.Fatalf("fleet: this scenario of a hot key cannot be played: %+v", s)
	}
	w := &hotWorld{
		s: s, rnd: rand.New(rand.NewPCG(s.Seed, 1)), meter: meter.NewBucket(algo.BucketOf(s.Limit)),
		asked: make([]int64, s.Processes), granted: make([]int64, s.Processes),
	}
	w.report = HotReport{Processes: s.Processes, Seconds: (s.Span - s.Steady).Seconds()}
	w.report.Tenths = make([]int64, s.Span/(time.Second/10)+20)
	w.seconds = make([]int64, s.Span/time.Second+2)
	w.order = w.rnd.Perm(s.Processes)
	var limiter hotLimiter
	switch s.Kind {
	case Leases:
		limiter = newHotLeases(w, 0)
	case ShortLeases:
		limiter = newHotLeases(w, 1)
	case DropRatio, DropRatioCapped:
		limiter = newHotRatio(w, s.Kind == DropRatioCapped)
	case RateLeases:
		limiter = newHotRates(w)
	case CentralExact:
		limiter = &hotCentral{w, newCentral(s.Limit)}
	default:
		t.Fatalf("fleet: there is no kind %q of a hot key", s.Kind)
	}
	w.play(limiter)
	w.measure()
	if h, ok := limiter.(*hotLeases); ok {
		for _, part := range h.parts {
			w.report.OpsOf = append(w.report.OpsOf, part.ops)
		}
	}
	return w.report
}

// loadAt returns the load at a time (ns).
func (w *hotWorld) loadAt(t int64) float64 {
	if t < int64(w.s.Step) {
		return 0.5
	}
	return w.s.Load
}

// play makes the calls of all processes.
func (w *hotWorld) play(limiter hotLimiter) {
	parts, rnd := cumulate(zipf(w.s.Processes, w.s.Zipf)), rand.New(rand.NewPCG(w.s.Seed, 2)) // alike for all kinds
	var next func()
	central, last := newCentral(w.s.Limit), 0.0
	next = func() {
		last += rnd.ExpFloat64() * 1e9 / (perSecond(w.s.Limit) * w.loadAt(int64(last)))
		if last >= float64(w.s.Span) {
			return
		}
		w.At(int64(last), func() {
			p := w.order[parts.draw(rnd)]
			if w.steady() {
				w.report.Calls++
				w.asked[p]++
			}
			if w.Now >= int64(w.s.Step+5*time.Second) {
				w.report.AwayOf++
			}
			if ok, _ := central.take(hotEpoch+w.Now, 1); ok && w.steady() {
				w.report.Central++
			}
			limiter.call(p)
			next()
		})
	}
	next()
	w.Run(int64(w.s.Span + time.Second))
}

func (w *hotWorld) steady() bool { return w.Now >= int64(w.s.Steady) && w.Now < int64(w.s.Span) }

// admit counts a call that process p admits now.
func (w *hotWorld) admit(p int) {
	w.meter.Admit(w.Now, 1)
	if i := w.Now / int64(time.Second/10); i < int64(len(w.report.Tenths)) {
		w.report.Tenths[i]++
	}
	if w.steady() {
		w.report.Admitted++
		w.granted[p]++
	}
}

// away counts a call that is decided without Redis.
func (w *hotWorld) away() {
	if w.Now >= int64(w.s.Step+5*time.Second) {
		w.report.Away++
	}
}

// hotServer is a Redis of a hot key.
type hotServer struct {
	free int64 // ns; it has done all ops that have come
	ops  int64 // of the steady part
	dies int64 // ns; 0: never
}

// exchange lets an op reach a Redis. answer runs when the answer is back.
func (w *hotWorld) exchange(to *hotServer, run, answer func()) {
	w.After(int64(w.s.Latency/2), func() {
		if w.steady() {
			w.report.Ops++
			to.ops++
		}
		w.seconds[min(w.Now/second, int64(len(w.seconds)-1))]++
	})
	w.message(to, w.s.RedisOp, run, answer)
}

// message lets a message reach a Redis, which needs the time cost for it, and runs one at a time.
func (w *hotWorld) message(to *hotServer, cost time.Duration, run, answer func()) {
	there := int64(w.s.Latency / 2)
	w.After(there, func() {
		if to.dies > 0 && w.Now >= to.dies {
			return
		}
		to.free = max(to.free, w.Now) + int64(cost)
		w.At(to.free, func() {
			run()
			w.After(int64(w.s.Latency)-there, answer)
		})
	})
}

// measure computes the figures of the whole run.
func (w *hotWorld) measure() {
	r, rate := &w.report, perSecond(w.s.Limit)
	r.Excess = w.meter.Excess()
	for _, n := range w.seconds {
		r.Peak = max(r.Peak, float64(n)/float64(w.s.Processes))
	}
	r.Low = math.Inf(1)
	from := int(max(w.s.Steady, w.s.Step+3*time.Second) / (time.Second / 10))
	for i := from; i+10 <= int(w.s.Span/(time.Second/10)); i += 10 {
		var sum int64
		for _, n := range r.Tenths[i : i+10] {
			sum += n
		}
		r.Low, r.High = min(r.Low, float64(sum)/rate), max(r.High, float64(sum)/rate)
	}
	var sum, squares float64
	for _, p := range w.order {
		n := float64(w.granted[p])
		sum, squares = sum+n, squares+n*n
		if w.asked[p] > 0 {
			r.Acceptance = append(r.Acceptance, n/float64(w.asked[p]))
		}
	}
	r.Jain = jain(float64(w.s.Processes), sum, squares)
}

// hotEpoch is Redis's time, in ns, at the start of a run.
const hotEpoch = 1_763_000_000 * second

// hotCentral is one bucket without a network.
type hotCentral struct {
	w *hotWorld
	*central
}

func (c *hotCentral) call(p int) {
	if ok, _ := c.take(hotEpoch+c.w.Now, 1); ok {
		c.w.admit(p)
	}
}
