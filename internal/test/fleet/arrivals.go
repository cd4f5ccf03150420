package fleet

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// keyLoads returns the load of each key, in calls per unit of the key's rate: Zipf shares of Load.Factor, clamped.
func (l Load) keyLoads() []float64 {
	loads := make([]float64, max(l.Keys, 1))
	for i, share := range zipf(len(loads), l.KeyZipf) {
		loads[i] = l.Factor * share * float64(len(loads))
		if l.KeyHigh > 0 {
			loads[i] = min(loads[i], l.KeyHigh)
		}
		loads[i] = max(loads[i], l.KeyLow)
	}
	return loads
}

// zipf divides 1 into n parts. The i-th part is proportional to 1/i^by.
func zipf(n int, by float64) []float64 {
	parts, sum := make([]float64, n), 0.0
	for i := range parts {
		parts[i] = math.Pow(float64(i+1), -by)
		sum += parts[i]
	}
	for i := range parts {
		parts[i] /= sum
	}
	return parts
}

// shares is the shares of several keys or processes, cumulative.
type shares []float64

func cumulate(loads []float64) shares {
	sum, all := 0.0, make(shares, len(loads))
	for i, l := range loads {
		sum += l
		all[i] = sum
	}
	return all
}

// draw returns the index of a share, with a probability in proportion to it.
func (s shares) draw(rng *rand.Rand) int {
	n := len(s)
	if n == 1 {
		return 0
	}
	i, _ := slices.BinarySearch(s, rng.Float64()*s[n-1])
	return min(i, n-1)
}

// cost returns the cost of a call.
func (l Load) cost(rng *rand.Rand) int64 {
	if l.MaxCost <= 1 {
		return 1
	}
	least := max(l.MinCost, 1)
	return least + rng.Int64N(l.MaxCost-least+1)
}

// stream produces the calls of one process, in order, from its own random source. The calls do not depend on events of
// the run.
type stream struct {
	rng     *rand.Rand
	load    Load
	span    time.Duration
	perNs   float64 // calls of this process per ns, at Factor
	keys    shares
	events  float64 // calls expected up to the last one, in the Poisson part
	next    int64   // ns; next call of the Poisson part
	burst   int64   // ns; next call of a burst
	left    int     // calls left in the burst, minus one
	last    int64   // ns; the previous call
	bursted int64   // number of bursts so far
}

const (
	burstEvery = int64(time.Second)
	burstFirst = burstEvery / 2
	burstGap   = int64(time.Microsecond) // almost simultaneous, but in a fixed order
	never      = math.MaxInt64
)

func newStream(rng *rand.Rand, s Scenario, loads []float64, part float64) *stream {
	keys := cumulate(loads)
	st := &stream{
		rng: rng, load: s.Load, span: s.Span, keys: keys, last: -1, burst: never,
		perNs: keys[len(keys)-1] * part * float64(s.Limit.Rate) / float64(s.Limit.Period),
	}
	if st.load.Shape == Burst {
		st.nextBurst()
	}
	st.nextPoisson()
	return st
}

// arrival is one call: its time in ns after the start of the load, its key and its cost.
type arrival struct {
	at   int64
	key  int
	cost int64

	spike bool // a critical call of a spike
}

func (a arrival) compare(b arrival) int { return cmp.Compare(a.at, b.at) }

// spiked returns a function that returns the calls of a process with its part of the spikes.
func (s Scenario) spiked(rng *rand.Rand, next func() (arrival, bool)) func() (arrival, bool) {
	if s.Spike == 0 {
		return next
	}
	const within = 50 * time.Millisecond
	var spikes []arrival
	for at := burstFirst; at < int64(s.Span); at += burstEvery {
		for left := float64(s.Spike) / float64(s.Processes); rng.Float64() < left; left-- {
			spikes = append(spikes, arrival{at: at + rng.Int64N(int64(within)), cost: 1, spike: true})
		}
	}
	slices.SortStableFunc(spikes, arrival.compare)
	a, more := next()
	return func() (out arrival, ok bool) {
		if out, ok = a, more; len(spikes) > 0 && (!more || spikes[0].at < a.at) {
			out, spikes = spikes[0], spikes[1:]
			return out, true
		}
		if more {
			a, more = next()
		}
		return out, ok
	}
}

// take returns the next call. It returns false after the last one.
func (st *stream) take() (arrival, bool) {
	at := min(st.next, st.burst)
	if at >= int64(st.span) {
		return arrival{}, false
	}
	switch {
	case at == st.next:
		st.nextPoisson()
	case st.left > 0:
		st.left--
		st.burst += burstGap
	default:
		st.nextBurst()
	}
	at = max(at, st.last+1) // the calls of one process have an order
	st.last = at
	return arrival{at: at, key: st.keys.draw(st.rng), cost: st.load.cost(st.rng)}, true
}

// nextPoisson adds an exponential amount to the expected number of calls and finds the time at which that number is
// expected, in the shape of the load.
func (st *stream) nextPoisson() {
	st.events += st.rng.ExpFloat64()
	t := st.events / st.perNs // for a load of 0: never
	switch st.load.Shape {
	case Burst:
		t *= 2
	case Ramp:
		t = math.Sqrt(t * float64(st.span))
	case OnOff:
		on, off := float64(st.load.On), float64(st.load.Off)
		t += math.Floor(t/on) * off
	}
	if st.next = never; t < float64(st.span) {
		st.next = int64(t)
	}
}

// nextBurst prepares a burst of a tenth of a second's calls, rounded up or down at random.
func (st *stream) nextBurst() {
	n := st.perNs * float64(burstEvery) / 10
	for at := burstFirst + st.bursted*burstEvery; at < int64(st.span); at += burstEvery {
		st.bursted++
		if st.left = int(n); st.rng.Float64() < n-math.Floor(n) {
			st.left++
		}
		if st.left > 0 {
			st.left--
			st.burst = at
			return
		}
	}
	st.burst = never
}
