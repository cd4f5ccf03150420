package reference_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// windowRules switches off rules for windows. Each test with a rule off shows the failure
// that the rule prevents.
type windowRules struct {
	uncapped   bool // credit has no bound
	dropLate   bool // units of the last window are not counted
	leaseStays bool // a lease outlives its window
	viewStays  bool // a view outlives its window
}

// windowFleet is a fleet with credit and leases on one window, behind a network with
// delays.
type windowFleet struct {
	rng    *rand.Rand
	rules  windowRules
	window algo.Window
	state  algo.State
	truth  Model
	credit int64
	procs  []*windowProc
	now    int64
	excess *big.Rat // the most units admitted above the limit
}

type windowProc struct {
	view     algo.Answer
	received int64 // time at which the view came
	ends     int64 // end of the view, counted from the time at which its op was sent
	win      int64 // window of the view
	pending  int64
	owedWin  int64 // window of the pending units
	inflight int64
	lease    int64
	leaseEnd int64
	op       *algo.Op // in flight
	sent     int64
	arrives  int64 // at Redis; 0: it has arrived
	returns  int64
	answer   algo.Answer
	answered int64 // Redis time
}

func newWindowFleet(rng *rand.Rand, l hybridlimit.Limit, rules windowRules) *windowFleet {
	f := &windowFleet{
		rng: rng, rules: rules, window: algo.WindowOf(l), truth: New(l), credit: 2,
		now: start + rng.Int64N(1e9), excess: new(big.Rat),
	}
	for range 3 {
		f.procs = append(f.procs, &windowProc{})
	}
	return f
}

// delay draws a network delay in µs: up to 1 ms, and in one of four draws up to half a window.
func (f *windowFleet) delay() int64 {
	if f.rng.IntN(4) == 0 {
		return 1 + f.rng.Int64N(f.window.Period/2)
	}
	return 1 + f.rng.Int64N(1000)
}

// admit counts n admitted units.
func (f *windowFleet) admit(n int64) {
	f.truth = f.truth.Load(f.now)
	f.truth.Take(f.now, n)
	if over := new(big.Rat).Neg(f.truth.Free(f.now)); over.Cmp(f.excess) > 0 {
		f.excess = over
	}
}

func (f *windowFleet) call(p *windowProc) {
	if p.lease > 0 && f.now < p.leaseEnd {
		p.lease--
		f.admit(1)
		return
	}
	alive := f.now < p.ends || f.rules.viewStays
	level := p.view.Level + p.view.Refill*(f.now-p.received)
	room := min(level, p.view.Cap)/f.window.Unit - p.pending - p.inflight
	if p.pending > 0 && p.owedWin != p.win {
		alive = false // a process owes units of one window at a time
	}
	if p.received > 0 && alive && room >= 1 && (p.pending+p.inflight+1 <= f.credit || f.rules.uncapped) {
		p.pending, p.owedWin = p.pending+1, p.win
		f.admit(1)
	}
}

func (f *windowFleet) send(p *windowProc) {
	p.op = &algo.Op{Owed: p.pending, Win: p.owedWin, Demand: 1e6 * f.rng.Int64N(2), Div: 6}
	p.inflight, p.pending, p.sent = p.pending, 0, f.now
	p.arrives = f.now + f.delay()
}

func (f *windowFleet) apply(p *windowProc) {
	op := *p.op
	if f.rules.dropLate && op.Owed > 0 && op.Win < f.window.Number(f.now) {
		op.Owed = 0
	}
	next, ans, dirty := f.window.Apply(f.state, op, f.now)
	if dirty {
		f.state = next
	}
	p.answer, p.answered, p.arrives, p.returns = ans, f.now, 0, f.now+f.delay()
}

func (f *windowFleet) receive(p *windowProc) {
	a := p.answer
	p.op, p.inflight, p.returns = nil, 0, 0
	p.view, p.received, p.ends, p.win = a, f.now, p.sent+a.Ends, f.window.Number(p.answered)
	end := p.sent + a.Life
	if f.rules.leaseStays {
		end = p.sent + algo.Generation
	}
	if f.now < end {
		paid := min(a.Lease, p.pending) // a lease first pays the units admitted on credit
		p.pending -= paid
		a.Lease -= paid
		p.lease, p.leaseEnd = a.Lease, end
	}
}

// run plays a schedule and returns the excess.
func (f *windowFleet) run(steps int) *big.Rat {
	for range steps {
		f.now += f.rng.Int64N(f.window.Period/40) + 1
		for _, p := range f.procs {
			for range f.rng.IntN(6) {
				f.call(p)
			}
			switch {
			case p.op == nil && f.rng.IntN(2) == 0:
				f.send(p)
			case p.op != nil && p.arrives > 0 && f.now >= p.arrives:
				f.apply(p)
			case p.op != nil && p.returns > 0 && f.now >= p.returns:
				f.receive(p)
			}
		}
	}
	return f.excess
}

// A fleet admits at most Rate plus the credit of all processes but one. For a fixed window
// this counts per window, with the carried units. For a sliding window it counts the
// estimate. With one rule off, the fleet admits more.
func TestWindowFleets(t *testing.T) {
	const period = 400 * time.Millisecond
	for _, l := range []hybridlimit.Limit{hybridlimit.FixedWindow(20, period), hybridlimit.SlidingWindow(20, period)} {
		for _, tc := range []struct {
			name   string
			rules  windowRules
			breaks bool
		}{
			{"all rules", windowRules{}, false},
			{"credit without a bound", windowRules{uncapped: true}, true},
			{"late units dropped", windowRules{dropLate: true}, true},
			{"a lease outlives its window", windowRules{leaseStays: true}, true},
			{"a view outlives its window", windowRules{viewStays: true}, true},
		} {
			t.Run(l.Algorithm.String()+"/"+tc.name, func(t *testing.T) {
				bound, worst, over := big.NewRat(2*2, 1), new(big.Rat), 0
				runs := 200
				for seed := range uint64(runs) {
					f := newWindowFleet(rand.New(rand.NewPCG(seed, 7)), l, tc.rules)
					if excess := f.run(300); excess.Cmp(bound) > 0 {
						over++
						if excess.Cmp(worst) > 0 {
							worst = excess
						}
					}
				}
				x, _ := worst.Float64()
				t.Logf("%d of %d schedules above the bound, by up to %.1f units", over, runs, max(0, x-4))
				if (over > 0) != tc.breaks {
					t.Errorf("%d schedules break the bound", over)
				}
			})
		}
	}
}
