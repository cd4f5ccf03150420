package ratelease

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// event is something that happens at a time in ns.
type event struct {
	at, seq int64
	do      func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// model is a fleet on one key, with a network that delays, loses and repeats messages.
type model struct {
	rng     *rand.Rand
	now     int64 // ns
	clock   int64 // µs; that of Redis at 0
	queue   events
	seq     int64
	terms   Terms
	meter   *meter.Bucket
	procs   []*process
	state   State
	records map[int64]Record // by the identity of the process
	number  int64
	granted map[int64]int64 // millionths on their way to calls that wait, by number
	most    int64           // the largest sum of granted
	load    float64         // calls per unit of the rate
	costs   int64           // the largest cost
	faults  bool
	mutant  string
	ops     int64
	central *meter.Bucket // one bucket without a network
	could   int64         // units that it admits
	passed  int64         // units that the fleet admits
}

type process struct {
	Hand
	id    int64
	waits []int64
	gone  bool
}

func (m *model) after(d int64, do func()) {
	m.seq++
	heap.Push(&m.queue, event{m.now + d, m.seq, do})
}

const epoch, year = int64(1_763_000_000_000_000), int64(365 * 86400e6)

// trials is what happens in a play.
type trials struct {
	seconds int64
	faults  bool // of the network and the processes
	wipe    bool // Redis loses all data once
	ahead   bool // the clock of Redis is put forward once
	mutant  string
}

// play runs a drawn fleet. It returns the units above the bound and those that were on their way.
func play(rng *rand.Rand, t trials) (m *model, excess, slack float64) {
	m = &model{rng: rng, clock: epoch, records: map[int64]Record{}, granted: map[int64]int64{}, faults: t.faults, mutant: t.mutant}
	rate := []int64{2, 10, 40, 300}[rng.IntN(4)]
	burst := max(1, rate*(1+rng.Int64N(10))/2)
	m.terms = Terms{Rate: rate * Micro, Burst: burst * Micro}
	m.load = []float64{0.5, 1, 2, 8}[rng.IntN(4)]
	m.costs = []int64{1, 1, 5}[rng.IntN(3)]
	m.meter = meter.NewBucket(algo.Bucket{Unit: 1e6, Refill: rate, Cap: burst * 1e6})
	m.central = meter.NewBucket(algo.Bucket{Unit: 1e6, Refill: rate, Cap: burst * 1e6})
	for range 1 + rng.IntN(6) {
		m.procs = append(m.procs, m.newProcess())
	}
	every := 1e9 * float64(len(m.procs)) / (float64(rate) * m.load) * float64(1+m.costs) / 2
	for i := range m.procs {
		m.calling(i, every*(0.2+1.6*rng.Float64()))
		m.after(rng.Int64N(LookEvery), func() { m.look(i) })
	}
	if t.faults {
		m.trouble()
	}
	if t.wipe {
		m.after(10e9+rng.Int64N(10e9), func() { m.state, m.records = State{}, map[int64]Record{} })
	}
	if t.ahead {
		m.after(10e9+rng.Int64N(10e9), func() { m.clock += m.rng.Int64N(year >> (2 * m.rng.IntN(12))) })
	}
	for len(m.queue) > 0 && m.queue[0].at < t.seconds*1e9 {
		e := heap.Pop(&m.queue).(event)
		m.now = e.at
		e.do()
	}
	return m, m.meter.Excess(), float64(m.most)/Micro + 1e-3
}

func (m *model) newProcess() *process { return &process{id: m.rng.Int64()} }

func (m *model) calling(i int, every float64) {
	m.after(1+int64(m.rng.ExpFloat64()*every), func() {
		n := 1 + m.rng.Int64N(m.costs)
		if m.rng.IntN(500) == 0 {
			every *= 0.3 + 2*m.rng.Float64()
		}
		m.call(m.procs[i], min(n, m.terms.Burst/Micro))
		m.calling(i, every)
	})
}

func (m *model) conditions() *Conditions {
	return &Conditions{Terms: m.terms, Procs: int64(len(m.procs)), Wait: 50e6}
}

// local is the time of a process. A Hand knows no time 0.
func (m *model) local() int64 { return m.now + 1e9 }

func (m *model) call(p *process, n int64) {
	if m.central.Holds(m.now, n) {
		m.central.Admit(m.now, n)
		m.could += n
	}
	action, exchange := p.Call(m.conditions(), n, m.local())
	switch action {
	case Admit:
		m.admit(n)
	case Wait:
		p.waits = append(p.waits, n)
		at := len(p.waits)
		m.after(50e6, func() { // the call gives up
			if at <= len(p.waits) && p.waits[at-1] == n {
				p.waits[at-1] = 0
			}
		})
	}
	if exchange {
		m.exchange(p, p.Op)
	}
}

// look is what a process does once a second.
func (m *model) look(i int) {
	if p := m.procs[i]; p.Idle(m.conditions(), m.local()) {
		m.exchange(p, p.Leave)
	}
	m.after(LookEvery, func() { m.look(i) })
}

func (m *model) admit(n int64) {
	m.passed += n
	m.meter.Admit(m.now, n)
}

// delay is the time of a message in one direction.
func (m *model) delay() int64 {
	switch {
	case !m.faults || m.rng.IntN(10) > 0:
		return 100e3 + m.rng.Int64N(2e6)
	case m.rng.IntN(4) > 0:
		return m.rng.Int64N(300e6)
	}
	return m.rng.Int64N(9e9)
}

func (m *model) lose() bool { return m.faults && m.rng.IntN(12) == 0 }

func (m *model) redisNow() int64 { return m.clock + m.now/1000 }

func (m *model) exchange(p *process, begin func(c *Conditions, want, number, now int64) Op) {
	m.number++
	var want int64
	for _, n := range p.waits {
		want += n
	}
	rate := p.rate
	op, sent, number, done := begin(m.conditions(), want, m.number, m.local()), m.local(), m.number, false
	id := p.id
	lost := func() {
		if !done && !p.gone {
			done = true
			p.Lost(m.local(), m.rng.Float64())
			p.waits = p.waits[:0]
			if m.mutant == "keeps its rate" {
				p.rate, p.after, p.until = rate, m.local()+4e9, p.until+4e9
			}
		}
		delete(m.granted, number)
	}
	run := func() {
		r := m.records[id]
		if m.mutant == "runs late" {
			r.Number = min(r.Number, float64(number)-1)
		}
		state, record, answer, ok := Exchange(m.state, r, op, m.redisNow())
		m.state, m.records[id] = state, record
		m.ops++
		if !ok {
			m.after(m.delay(), lost)
			return
		}
		m.granted[number] = int64(record.Granted)
		var sum int64
		for _, n := range m.granted {
			sum += n
		}
		m.most = max(m.most, sum)
		if m.lose() {
			return
		}
		m.after(m.delay(), func() {
			delete(m.granted, number)
			if done || p.gone {
				return
			}
			done = true
			p.Hear(op, answer, sent, m.local(), m.rng.Float64())
			if m.mutant == "lives longer" {
				p.until, p.renewAt = p.until+lifeNs, p.renewAt+lifeNs
			}
			for _, n := range p.waits {
				if n > 0 && p.Take(n, m.local()) {
					m.admit(n)
				}
			}
			p.Served()
			p.waits = p.waits[:0]
		})
	}
	for range 1 + m.rng.IntN(8)/7 {
		if !m.lose() {
			m.after(m.delay(), run)
		}
	}
	m.after(250e6, lost) // the time-out of an attempt
}

// trouble makes processes begin anew, loses records, and puts the clock back.
func (m *model) trouble() {
	m.after(m.rng.Int64N(4e9), func() {
		switch i := m.rng.IntN(len(m.procs)); m.rng.IntN(4) {
		case 0:
			m.procs[i].gone = true
			m.procs[i] = m.newProcess()
		case 1:
			delete(m.records, m.procs[i].id)
		case 2:
			m.clock -= m.rng.Int64N(9e6)
		}
		m.trouble()
	})
}

// bounded plays drawn fleets. It fails if one admits more above Burst + rate·t than most allows, in units, beside those
// that were on their way to calls. It returns what each play had above, in bursts.
func bounded(t *testing.T, what trials, most func(*Terms) float64) (above []float64) {
	rng, plays := testenv.Rand(t), 400
	if testenv.Full() {
		plays = 20_000
	}
	for range plays {
		seed := rng.Uint64()
		m, excess, slack := play(rand.New(rand.NewPCG(seed, 0)), what)
		above = append(above, (excess-slack)/(float64(m.terms.Burst)/Micro))
		if excess > most(&m.terms)+slack {
			t.Fatalf("seed %d: %.3f units above the bound, and %.3f were on their way: %d processes, %+v, load %g", seed, excess, slack, len(m.procs), m.terms, m.load)
		}
	}
	t.Logf("at most %.3f bursts above, beside what was on its way", slices.Max(above))
	return above
}

// burstAndLife is what may be admitted beside a bucket's bound if Redis forgets: its bucket may be full once more, and
// leases that it does not know of go on to their end.
func burstAndLife(l *Terms) float64 { return (1.001*float64(l.Burst) + 4*float64(l.Rate)) / Micro }

// TestBound plays drawn fleets with faults. Nothing is admitted above Burst + rate·t, beside the units that were on
// their way to calls.
func TestBound(t *testing.T) {
	bounded(t, trials{seconds: 40, faults: true}, func(*Terms) float64 { return 0 })
}

// TestWipe lets Redis lose all data once. The processes tell what was leased, so hardly a play has more than a burst
// above. In such a play, the first processes that tell do not know the newest leases, and Redis leases their rates again.
func TestWipe(t *testing.T) {
	plays := bounded(t, trials{seconds: 30, wipe: true}, burstAndLife)
	rare := 0
	for _, above := range plays {
		if above > 1.001 {
			rare++
		}
	}
	if rare > len(plays)/1000 {
		t.Errorf("%d of %d plays have more than a burst above", rare, len(plays))
	}
}

// TestClockForward puts the clock of Redis forward once, by up to a year. Redis then counts no lease of before.
func TestClockForward(t *testing.T) { bounded(t, trials{seconds: 30, ahead: true}, burstAndLife) }

// TestBoundFindsMutants checks that TestBound finds a protocol that is wrong.
func TestBoundFindsMutants(t *testing.T) {
	for _, mutant := range []string{"runs late", "lives longer", "keeps its rate"} {
		t.Run(mutant, func(t *testing.T) {
			rng := testenv.Rand(t)
			for range 5000 {
				if _, excess, slack := play(rand.New(rand.NewPCG(rng.Uint64(), 0)), trials{seconds: 40, faults: true, mutant: mutant}); excess > slack+0.1 {
					return
				}
			}
			t.Error("not found")
		})
	}
}

// TestRateIsUsed plays fleets without faults. With more calls than the rate, nearly all of it is used.
func TestRateIsUsed(t *testing.T) {
	rng, worst := testenv.Rand(t), 2.0
	for range 200 {
		seed := rng.Uint64()
		m, excess, slack := play(rand.New(rand.NewPCG(seed, 0)), trials{seconds: 60})
		if excess > slack {
			t.Fatalf("seed %d: %.3f units above the bound, %.3f on their way, %+v, load %g, %d processes, costs %d", seed, excess, slack, m.terms, m.load, len(m.procs), m.costs)
		}
		if m.costs > 1 || m.terms.Burst < 4*Micro*int64(len(m.procs)) {
			continue
		}
		used := float64(m.passed) / float64(m.could)
		ops := float64(m.ops) / 60 / float64(len(m.procs))
		worst = min(worst, used)
		if used < 0.75 || ops > 3+10/float64(len(m.procs)) {
			t.Errorf("seed %d: %.3f of the units, %.2f ops, %+v, load %g, %d processes", seed, used, ops, m.terms, m.load, len(m.procs))
		}
	}
	t.Logf("at least %.3f of the units", worst)
}
