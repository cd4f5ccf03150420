package algo

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/periods"
)

// Window is the limit of a fixed or sliding window. Usage is counted in sub-units. A unit of a fixed window is one
// sub-unit; a unit of a sliding window is as many as the window has ticks. A tick is 1 µs, unless Rate·Period is above
// 2⁵¹. Then it is longer, and the count of the last window decreases in steps of a tick, up to one step late.
type Window struct {
	Sliding bool  // or fixed
	Rate    int64 // units
	Period  int64 // µs
	Step    int64 // µs: a window with number n begins at n·Step
	Tick    int64 // µs
	Unit    int64 // sub-units per unit
	Cap     int64 // sub-units of Rate

	// For a window of a calendar, which counts like a fixed one: calendar.go. Period is that of the sender's window.
	Calendar bool
	FromUse  bool             // a window begins with the first unit after the last one
	Win      int64            // number of the sender's window; 0: it names none
	Follows  int64            // µs: the length of the next window, as the sender computes it
	periods  *periods.Periods // nil for FromUse
}

// WindowOf converts a valid limit.
func WindowOf(l hybridlimit.Limit) Window {
	w := Window{Rate: l.Rate, Period: int64(l.Period / time.Microsecond), Tick: 1, Unit: 1}
	w.Step, w.Follows = w.Period, w.Period
	if l.Algorithm == hybridlimit.AlgSlidingWindow {
		w.Sliding = true
		// Two windows of twice the Rate stay in the exact range.
		w.Tick = ceilDiv(w.Period, max(exact/4/w.Rate, 1))
		w.Unit = ceilDiv(w.Period, w.Tick)
	}
	if l.Algorithm == hybridlimit.AlgCalendarWindow {
		w.Calendar, w.Step, w.FromUse = true, second, l.Calendar.Unit == hybridlimit.FromUse
		if !w.FromUse { // about the longest; At has the period of a time
			w.Period, w.periods = int64((l.TimeToFull()+24*time.Hour)/time.Microsecond), periods.Of(l.Calendar)
		}
		w.Follows = w.Period
	}
	w.Cap = w.Rate * w.Unit
	return w
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func (w Window) kind() Kind {
	switch {
	case w.Sliding:
		return KindSliding
	case w.Calendar:
		return KindCalendar
	}
	return KindFixed
}

// Number returns the number of the window of a Redis time. Of a window from the first use it is not known: 0.
func (w Window) Number(at int64) int64 {
	switch {
	case w.periods != nil:
		return w.periods.At(at).Begin / second
	case w.FromUse:
		return 0
	}
	return at / w.Step
}

// Begin returns the µs of Redis time at which a window begins.
func (w Window) Begin(win int64) int64 { return win * w.Step }

// end returns the end of the state's window, which is the begin of the next one.
func (w Window) end(s *State) int64 { return w.Begin(s.Win) + s.Period }

// next returns the number of the window after the state's.
func (w Window) next(s *State) int64 { return s.Win + s.Period/w.Step }

// last reports whether a window before the state's is the one just before it.
func (w Window) last(s *State, win int64) bool { return 2*(s.Win-win) <= 3*(s.Period/w.Step) }

// has reports whether a time is in the state's window.
func (w Window) has(s *State, at int64) bool { return at >= w.Begin(s.Win) && at < w.end(s) }

// clock returns now, or the beginning of the state's window if now is before it, because the clock stepped back.
func (w Window) clock(s State, now int64) int64 { return max(now, w.Begin(s.Win)) }

// Load advances a state to now and converts it to this window.
func (w Window) Load(s State, now int64) State {
	if s.Born == 0 || s.Kind != w.kind() {
		return State{Kind: w.kind(), Born: now, Period: w.Period, Win: w.opens(now)}
	}
	if s.Period != w.Period && !w.Calendar {
		s = w.convert(s, now)
	}
	s.Cur, s.Prev, s.Next = min(s.Cur, w.most()), min(s.Prev, w.most()), min(s.Next, w.Rate)
	s = w.roll(s, now)
	s.Debt = min(s.Debt, max(s.Cur-w.Rate, 0)) // a larger limit permits it
	return s
}

// roll advances a state to the window of now. If the clock stepped back by more than ClockSlack, the state moves with
// it: starting anew would forgive used units.
func (w Window) roll(s State, now int64) State {
	if w.Calendar {
		s = w.rollCalendar(s, now)
	} else {
		win := now / w.Step
		for i := 0; s.Win < win && i < 3; i++ { // the fourth window back no longer counts
			s = w.shift(s, s.Win+1)
		}
		if s.Win < win || w.Begin(s.Win)-now > ClockSlack {
			s.Win = win
		}
	}
	if s.Reset < w.Begin(s.Win) {
		s.Reset = 0 // views of an earlier window are void
	}
	return w.settled(s)
}

// shift begins the window with a number after the state's. Units above Rate are carried into it.
func (w Window) shift(s State, win int64) State {
	debt := min(s.Debt, max(s.Cur-w.Rate, 0))
	s.Cur, s.Prev, s.Next, s.Carry, s.Win = debt+s.Next, s.Cur, 0, debt, win
	s.Debt = min(debt, max(s.Cur-w.Rate, 0))
	return s
}

// settled returns a state without Late, after the window of Born is over.
func (w Window) settled(s State) State {
	if !w.has(&s, s.Born) {
		s.Late = 0
	}
	return s
}

// most returns the largest count of a window: one Rate of debt.
func (w Window) most() int64 { return min(2*w.Rate, exact) }

// count changes the units of this window to cur. Of more units, those above Rate are debt. Of fewer, the debt goes
// first.
func (w Window) count(s *State, cur int64) {
	switch cur = min(cur, w.most()); {
	case w.Sliding: // the estimate looks back by itself
	case cur > s.Cur:
		s.Debt += max(cur-max(w.Rate, s.Cur), 0)
	default:
		s.Debt = max(s.Debt-(s.Cur-cur), 0)
	}
	s.Cur = cur
}

// convert counts the usage under another period in this window, after a change of the limit. The result is never less
// than the usage, and less than a unit more; less than three units if the product leaves the exact range.
func (w Window) convert(s State, now int64) State {
	old := w
	old.Period, old.Step = s.Period, s.Period
	s.Cur, s.Prev, s.Next = min(s.Cur, w.most()), min(s.Prev, w.most()), min(s.Next, w.Rate)
	s = old.roll(s, now)
	used := s.Cur + s.Next
	if w.Sliding {
		left := float64(s.Period - (old.clock(s, now) - old.Begin(s.Win)))
		product := float64(s.Prev) * left
		used += int64(math.Ceil(product / float64(s.Period)))
		if product >= exact {
			used++ // two roundings may have gone down
		}
	}
	s.Period, s.Win, s.Cur, s.Prev, s.Next, s.Carry = w.Period, now/w.Step, used, 0, 0, 0
	return s
}

// Level returns the sub-units left of a loaded state. The count of a sliding window and the leases of the next one are
// the estimate at the border, so together they stay below Rate too.
func (w Window) Level(s State, now int64) int64 {
	if w.Sliding {
		return w.Cap - max(s.Cur*w.Unit+s.Prev*w.weight(s, now), (s.Cur+s.Next)*w.Unit)
	}
	return w.Rate - s.Cur
}

// Apply runs op on a window at now and reports whether the state must be written. A state with Born 0 is an empty
// window.
func (w Window) Apply(s State, op Op, now int64) (State, Answer, bool) {
	written := s.Born != 0 && s.Kind == w.kind()
	s = w.Load(s, now)
	at := w.clock(s, now)
	dirty := op.Reset
	if op.Reset {
		s.Cur, s.Prev, s.Next, s.Since, s.Late, s.Reset = 0, 0, 0, 0, 0, at
		s.Debt, s.Carry = 0, 0
	}
	dirty = w.merge(&s, op, now) || dirty
	closed := w.closed(&s, now, !written)
	var ans Answer
	if op.Owed > 0 {
		if ans.Dropped = closed || !w.add(&s, op.Owed, op.Win, at); !ans.Dropped {
			s.Since, dirty = s.Since+min(op.Owed, exact-s.Since), true
		}
	}
	dirty = op.Refund > 0 && w.refund(&s, op.Refund, op.RefundAt) || dirty
	if op.Back > 0 {
		switch ans.Refused = !w.takesBack(s, op); {
		case ans.Refused:
		case op.Gen > s.Win:
			s.unleaseAhead(op.Back)
			dirty = true
		default:
			dirty = w.refund(&s, op.Back, op.Gen) || dirty
		}
	}

	dirty = w.observe(&s, op.used(now), at) || dirty
	free, refused := max(w.Level(s, at)/w.Unit-w.low(op.Floor), 0), int64(0)
	if closed {
		free = 0
	}
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
	if ans.Ends = w.end(&s) - now; closed {
		ans.Ends = 0
	}
	took := ans.Granted
	if ans.Ends >= MinLease {
		ans.Life = ans.Ends
	}
	switch {
	case op.Ahead:
		if s.Cur += took; !closed {
			w.leaseAhead(&s, op, &ans, at)
		}
		dirty = dirty || ans.Lease > 0
	case refused == 0:
		ans.Lease = min(w.wants(&s, op, ans.Life, free, at), free)
		took += ans.Lease
		s.Cur += took
	default:
		s.Cur += took
	}
	if took > 0 {
		s.Since, dirty = s.Since+min(took, exact-s.Since), true
	}
	ans.Level, ans.Cap = w.Level(s, at), w.Cap-s.Next*w.Unit
	if w.Sliding {
		ans.Refill = s.Prev / w.Tick
	}
	if w.Calendar {
		ans.Refill = s.Win
	}
	ans.Retry = w.retry(s, max(refused, 1)+w.low(op.Floor), at)
	if ans.Retry < Never {
		if ans.Retry = thaw(ans.Retry, at-now); closed {
			ans.Retry = 1
		}
	}
	if dirty || written {
		ans.Born = s.Born
	}
	return w.settled(s), ans, dirty
}

// low returns a floor, at most half of Rate, as of a bucket.
func (w Window) low(floor int64) int64 { return min(floor, w.Rate/2) }

// observe lowers the level to the units that another party's count leaves in this window, and reports whether it did.
// As in a bucket, they are not debited.
func (w Window) observe(s *State, used, at int64) bool {
	over := floorDiv(w.Level(*s, at), w.Unit) - (w.Rate - min(used, w.Rate))
	if used <= 0 || over <= 0 {
		return false
	}
	w.count(s, s.Cur+over)
	return true
}

// add debits units of a window. It returns false for a window before the last, which no longer counts. The level stays
// above -Cap.
func (w Window) add(s *State, n, win, at int64) bool {
	if win <= 0 || win >= s.Win {
		room := floorDiv(w.Level(*s, at)+w.Cap, w.Unit)
		w.count(s, s.Cur+min(n, max(room, 0)))
		return true
	}
	if !w.last(s, win) {
		return false
	}
	room := w.most() - s.Prev
	if w.Sliding {
		room = min(room, floorDiv(w.Level(*s, at)+w.Cap, w.weight(*s, at)))
	}
	w.setPrev(s, s.Prev+min(n, max(room, 0)))
	s.Late = min(s.Late+n, exact)
	return true
}

// takesBack reports whether leased units that the sender returns were counted in this state and not taken back before.
// Their window is this one, the last or the next. A batch that is sent again after its envelope was lost would give
// them back twice.
func (w Window) takesBack(s State, op Op) bool {
	return !op.Lost && !op.Broken && op.View.Born == s.Born && w.last(&s, op.Gen) && op.Gen <= w.next(&s)
}

// refund takes units off their window, not below zero, and reports whether that changed the state. If the window is
// unknown, it takes them off this one, as far as it has counted as many, and the rest off the last one.
func (w Window) refund(s *State, n, win int64) bool {
	before, here := *s, int64(0)
	if win > s.Win { // leased of the next window, before the limit was lowered
		next := min(n, s.Next)
		s.unleaseAhead(next)
		n -= next
	}
	since := s.Since
	switch {
	case win <= 0 || win >= s.Win:
		here = min(n, s.Cur)
		w.count(s, s.Cur-here)
		if win <= 0 && n > here {
			w.setPrev(s, s.Prev-min(n-here, s.Prev))
		}
	case w.last(s, win):
		w.setPrev(s, s.Prev-min(n, s.Prev))
	default:
		return false
	}
	s.Since = max(s.Since-n, 0)
	s.Late += here - (since - s.Since)
	return *s != before
}

// setPrev corrects the count of the last window, and the units carried from it: more units above Rate are debt too, and
// of fewer units the debt goes first.
func (w Window) setPrev(s *State, prev int64) {
	switch more := prev - max(w.Rate, s.Prev); {
	case w.Sliding:
	case more > 0:
		w.count(s, s.Cur+more)
		s.Carry += more
	case prev < s.Prev:
		less := min(s.Carry, max(s.Prev-max(w.Rate, prev), 0), s.Cur)
		w.count(s, s.Cur-less)
		s.Carry -= less
	}
	s.Prev = prev
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -ceilDiv(-a, b)
	}
	return a / b
}

// merge takes the history with more usage, as a bucket's merge does, if the sender's view is of this window. Any other
// view is void.
func (w Window) merge(s *State, op Op, now int64) bool {
	v := op.View
	if v.Born == 0 || v.At <= s.Reset || !w.has(s, v.At) {
		return false
	}
	v.Next = max(min(v.Next, w.Rate), 0)
	if v.Prev = max(min(v.Prev, w.most()), 0); !w.Sliding {
		v.Prev = 0
	}
	cur := w.counted(v)
	prev, next := max(v.Prev, s.Prev), max(v.Next, s.Next)
	same := v.Born == s.Born
	if !same && w.has(s, s.Born) { // units debited since Born are of this window
		cur = min(cur+max(s.Since-s.Late, 0), w.most())
	}
	cur = max(cur, s.Cur)
	if same && (!op.Lost || v.At > now) || cur == s.Cur && prev == s.Prev && next == s.Next {
		return false
	}
	w.count(s, cur)
	if s.Prev, s.Next = prev, next; same {
		s.Born, s.Since, s.Late = max(now, s.Born+1), 0, 0
	}
	return true
}

// counted returns the units that a view's window had counted. The level of a sliding window is the lower of two: see
// Level.
func (w Window) counted(v View) int64 {
	used := w.Cap - min(max(v.Level, -3*w.Cap), w.Cap)
	if w.Sliding {
		used -= max(v.Prev*w.weight(State{Win: w.Number(v.At)}, v.At), v.Next*w.Unit)
	}
	return min(max(ceilDiv(max(used, 0), w.Unit), 0), w.most())
}

// Rise returns the two parts of a view's Level of a sliding window. The level is the lower one: est, to which the units
// of the last window come back, or top, which stays until the window ends, unless units are returned. Both are Level of
// a fixed window.
func (w Window) Rise(v View) (est, top int64) {
	if !w.Sliding {
		return v.Level, v.Level
	}
	cur := w.counted(v)
	lost := (w.Tick - 1) * w.Unit // Prev of a view is a multiple of the tick
	est = w.Cap - cur*w.Unit - v.Prev*w.weight(State{Win: w.Number(v.At)}, v.At)
	top = w.Cap - (cur+v.Next)*w.Unit + lost
	return max(v.Level, est), max(v.Level, top)
}

// retry returns the µs from at until an ask for n units succeeds, and Never above Rate.
func (w Window) retry(s State, n, at int64) int64 {
	switch {
	case n > w.Rate:
		return Never
	case w.Sliding:
		return w.slidingRetry(s, n, at)
	default:
		return w.fixedRetry(s, n, at)
	}
}

// TTL returns the ms for which a state written at now must be kept: to the end of the window after its own, since late
// units still change it, and one window longer if the next window begins with units. It adds the longest lease and
// freeze.
func (w Window) TTL(s State, now int64) int64 {
	next := s.Period
	if w.Calendar { // it may be longer
		next += s.Period / 2
	}
	last := w.end(&s) + next
	if s.Debt+s.Next > 0 {
		last += next
	}
	return ceilDiv(max(last-w.clock(s, now), 0), 1000) + (Generation+ClockSlack)/1000
}
