package algo

import "math"

// The constants of the lease rule, in µs.
const (
	// MaxLease is the longest that a lease lives.
	MaxLease = 1_000_000
	// MinLease is the shortest lease worth having: a process takes two ticks
	// of up to 5 ms off its deadline.
	MinLease = 20_000
	// ClockSlack is how far Redis's clock may step back and freeze the
	// refill; a larger step shifts the state with the clock.
	ClockSlack = 1_000_000
)

// State is what Redis keeps of a token bucket.
type State struct {
	Unit  int64 // sub-units per unit when it was written
	Level int64 // sub-units; negative is debt, down to -Cap
	Last  int64 // µs of Redis time at which Level was right
	Born  int64 // µs of Redis time at creation; 0: there is no state
	Since int64 // units debited since Born, at most 2⁵³
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
	Div     int64   // a lease takes at most 1/Div of what is left; 0: no lease
	View    View    // the sender's last; zero: none
	// Lost says that Redis lost writes since View, so that it holds against a
	// state of its own birth too. Not without a reason: during a rollout
	// another process's refill makes a level look too high.
	Lost bool
}

// Answer is what an Op got.
type Answer struct {
	Granted int64 // units granted to Asks
	Lease   int64 // units leased
	Life    int64 // µs that the lease (and any unused grant) may be spent
	Level   int64 // sub-units left, negative in debt
	Retry   int64 // µs until the first refused ask can succeed (Never above the burst), else until one unit is there
	Born    int64 // State.Born; 0 where no state was needed
}

// Apply runs op on a token bucket at now and reports whether the state must
// be written. A state with Born 0 is a full bucket that nobody has used.
func (b Bucket) Apply(s State, op Op, now int64) (State, Answer, bool) {
	written := false
	if s.Born == 0 {
		s = State{Unit: b.Unit, Level: b.Cap, Last: now, Born: now}
	} else {
		written = true // there is one already: its birth is worth reporting
	}
	s.Level, s.Unit = b.Rescale(s.Level, s.Unit), b.Unit
	switch elapsed := now - s.Last; {
	case elapsed > 0:
		s.Level, s.Last = b.Fill(s.Level, elapsed), now
	case elapsed < -ClockSlack:
		s.Last = now
	}
	s.Level = min(s.Level, b.Cap)
	dirty := false

	if v := op.View; v.Born != 0 && v.Born != s.Born {
		// Products in conversions of their own: a fused one rounds otherwise than Lua.
		seen := float64(v.Level) + float64(float64(max(now-v.At, 0))*float64(b.Refill)) - float64(float64(s.Since)*float64(b.Unit))
		if seen < float64(s.Level) {
			s.Level, dirty = int64(math.Max(seen, float64(-b.Cap))), true
		}
	} else if op.Lost && v.Born != 0 && v.At <= now {
		seen := float64(v.Level) + float64(float64(s.Last-v.At)*float64(b.Refill))
		if seen <= float64(s.Level-b.Unit) {
			s.Level, s.Born, s.Since, dirty = int64(math.Max(seen, float64(-b.Cap))), max(now, s.Born+1), 0, true
		}
	}
	if op.Owed > 0 {
		s.Level, s.Since, dirty = b.debit(s.Level, op.Owed), s.Since+min(op.Owed, exact-s.Since), true
	}

	before := s.Level
	free, refused := b.Units(before), int64(0)
	var ans Answer
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
	if life := min(int64(MaxLease), (b.Cap-before)/b.Refill); life >= MinLease {
		ans.Life = life
		if op.Div > 0 && op.Demand > 0 && refused == 0 {
			mu := float64(op.Demand) * float64(life) / 1e9
			want := math.Floor(mu - float64(1.5*math.Sqrt(mu)))
			ans.Lease = int64(math.Max(0, math.Min(want, math.Floor(float64(free)/float64(op.Div)))))
		}
	}
	if took := ans.Granted + ans.Lease; took > 0 {
		s.Level, s.Since, dirty = s.Level-took*b.Unit, s.Since+min(took, exact-s.Since), true
	}
	ans.Level = s.Level
	if ans.Retry = b.Wait(s.Level, max(refused, 1)); ans.Retry > 0 && ans.Retry < Never {
		ans.Retry += max(s.Last-now, 0) // frozen until then
	}
	if dirty || written {
		ans.Born = s.Born
	}
	return s, ans, dirty
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
