package algo

import "math"

// The constants of the rules, in µs. What they are worth is measured in
// docs/lab, by the lab in bench/accuracy.
const (
	// MaxLease is the longest that a lease lives, and a generation of the
	// ledger.
	MaxLease = 1_000_000
	// MinLease is the shortest lease worth having: a process takes two ticks
	// of up to 5 ms off its deadline.
	MinLease = 20_000
	// ClockSlack is how far Redis's clock may step back and freeze the
	// refill; a larger step shifts the state with the clock.
	ClockSlack = 1_000_000
	// Horizon is the longest time for which a visit hands out units while
	// they are scarce.
	Horizon = 500_000
	// MaxTicket bounds the wait for a turn; processes look again sooner.
	MaxTicket = 60_000_000
)

// State is what Redis keeps of a token bucket.
type State struct {
	Unit  int64 // sub-units per unit when it was written
	Level int64 // sub-units; negative is debt, down to -Cap
	Last  int64 // µs of Redis time at which Level was right
	Born  int64 // µs of Redis time at creation; 0: there is no state
	Since int64 // units debited since Born, at most 2⁵³
	Slot  int64 // µs of Redis time of the next free turn; 0: now

	// Out is the ledger: units leased that lower the level to which the
	// bucket refills, by generation: that of Last, and the one before.
	Out [2]int64
}

// View is a state as a process last saw it, sent back so that Redis can tell,
// and repair, a loss. The zero View says nothing.
type View struct {
	Level int64 // sub-units of the op's limit
	At    int64 // µs of Redis time of that answer
	Born  int64 // State.Born then
}

// Op is one exchange for one key: pay what is owed, ask for units, ask for a
// lease.
type Op struct {
	Owed    int64   // units already admitted, debited unconditionally
	Asks    []int64 // units wanted, granted one after the other as they fit
	Partial bool    // an ask may be granted in part
	Demand  int64   // the process's demand in thousandths of a unit per second
	Div     int64   // twice the fleet: a lease takes at most 1/Div of what is left; 0: no lease and no turn
	View    View    // the sender's last; zero: none
	Gen     int64   // generation of what the ledger holds for the sender; 0: nothing
	Had     int64   // units that it holds
	Keep    int64   // units of these still in hand, to be renewed
	// Lost says that Redis lost writes since View, so that it holds against a
	// state of its own birth too. Not without a reason: during a rollout
	// another process's refill makes a level look too high.
	Lost bool
}

// Answer is what an Op got.
type Answer struct {
	Granted int64 // units granted to Asks
	Lease   int64 // units leased
	Life    int64 // µs that the lease may be spent, and, unless Gen says otherwise, any unused grant
	Level   int64 // sub-units left, negative in debt
	Retry   int64 // µs until the first refused ask can succeed (Never above the burst), else until one unit is there; with Div: until the sender's turn
	Born    int64 // State.Born; 0 where no state was needed
	Cap     int64 // sub-units to which the bucket refills, as the ledger is now
	Gen     int64 // not 0: the ledger holds the lease and what was to be kept, in this generation
}

// Apply runs op on a token bucket at now and reports whether the state must
// be written. A state with Born 0 is a full bucket that nobody has used.
func (b Bucket) Apply(s State, op Op, now int64) (State, Answer, bool) {
	written := s.Born != 0 // there is one already: its birth is worth reporting
	s = b.Load(s, now)
	dirty := b.merge(&s, op, now)
	if op.Owed > 0 {
		s.Level, s.Since, dirty = b.debit(s.Level, op.Owed), s.Since+min(op.Owed, exact-s.Since), true
	}
	var ans Answer
	if op.Gen != 0 && s.settle(op) {
		dirty = true
		if op.Keep > 0 {
			ans.Gen = s.generation()
		}
	}

	before := s.Level
	free, refused := b.Units(before), int64(0)
	for _, n := range op.Asks {
		switch {
		case n < 1:
		case n <= free:
			free -= n
			ans.Granted += n
		case op.Partial && free > 0:
			ans.Granted += free
			free = 0
		case refused == 0 && op.Partial:
			refused = 1
		case refused == 0:
			refused = n
		}
	}
	b.lease(&s, op, &ans, before, free, refused > 0, now)
	if took := ans.Granted + ans.Lease; took > 0 {
		s.Level, s.Since, dirty = s.Level-took*b.Unit, s.Since+min(took, exact-s.Since), true
	}
	ans.Level, ans.Cap = s.Level, b.ceiling(s)
	if ans.Retry = b.Wait(s.Level, max(refused, 1)); ans.Retry > 0 && ans.Retry < Never {
		ans.Retry += max(s.Last-now, 0) // frozen until then
	}
	if op.Div > 0 {
		dirty = b.turn(&s, op, ans.Granted, now) || dirty
		ans.Retry = max(s.Slot-now, 0)
	}
	if s.Slot <= s.Last {
		s.Slot = 0
	}
	if dirty || written {
		ans.Born = s.Born
	}
	return s, ans, dirty
}

// Load brings a state to now and into this bucket's terms.
func (b Bucket) Load(s State, now int64) State {
	if s.Born == 0 {
		return State{Unit: b.Unit, Level: b.Cap, Last: now, Born: now}
	}
	s.Level, s.Unit = b.Rescale(s.Level, s.Unit), b.Unit
	switch elapsed := now - s.Last; {
	case elapsed > 0:
		for s.out() > 0 && s.edge() <= now {
			b.refill(&s, s.edge())
			s.Out = [2]int64{0, s.Out[0]} // what is older is dead
		}
		b.refill(&s, now)
	case elapsed < -ClockSlack:
		s.Last = now
	}
	s.Level = min(s.Level, b.ceiling(s))
	return s
}

// refill brings the level to a time before which the ledger does not change.
func (b Bucket) refill(s *State, at int64) {
	b.Cap = b.ceiling(*s)
	s.Level, s.Last = b.Fill(s.Level, at-s.Last), at
}

// merge takes the larger of two histories where the state that the sender's
// view is of was lost, or rolled back: others only debit, so a state above a
// view of its own life has forgotten something. It begins a new life then, so
// that everyone else's view is held against it too; by less than a unit it is
// not worth that.
func (b Bucket) merge(s *State, op Op, now int64) bool {
	v := op.View
	if v.Born == 0 {
		return false
	}
	// Products in conversions of their own: a fused one rounds otherwise than Lua.
	if v.Born != s.Born {
		seen := float64(v.Level) + float64(float64(max(now-v.At, 0))*float64(b.Refill)) - float64(float64(s.Since)*float64(b.Unit))
		if seen < float64(s.Level) {
			s.Level = int64(math.Max(seen, float64(-b.Cap)))
			return true
		}
	} else if op.Lost && v.At <= now {
		seen := float64(v.Level) + float64(float64(s.Last-v.At)*float64(b.Refill))
		if seen <= float64(s.Level-b.Unit) {
			s.Level, s.Born, s.Since = int64(math.Max(seen, float64(-b.Cap))), max(now, s.Born+1), 0
			return true
		}
	}
	return false
}

// debit takes n units, down to a whole burst of debt.
func (b Bucket) debit(level, n int64) int64 {
	if float64(n)*float64(b.Unit) >= float64(level+b.Cap) {
		return -b.Cap
	}
	return level - n*b.Unit
}

// TTL is how many ms a state must be kept: until the bucket is full, the
// longest lease beyond it, and the longest that a clock which stepped back
// freezes the refill.
func (b Bucket) TTL(s State) int64 {
	return (b.WaitFull(s.Level)+999)/1000 + (MaxLease+ClockSlack)/1000
}
