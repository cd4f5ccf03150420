package algo

import "math"

// A lease of a window needs no ledger, because the window counts leased units until it is over. The lease and unused
// grants end with the window.
//
// A window begins with all processes empty-handed: each of them would wait for Redis once in each window, all at the
// same moment. So a process with a steady demand leases units of the next window before that begins. State.Next counts
// them, and the next window begins with them.
//
// The estimate of a sliding window at the border is Cur + Next. So every grant of the current window and every lease of
// the next one needs Cur + Next ≤ Rate. At a load above the limit nothing is left to lease ahead.
//
// An eighth of a fixed window is never leased ahead. While a fleet grows, the processes do not agree on Div, and the
// leases of the old ones would be all of the next window: a process without one would be refused at its begin, and deny
// until its end.
//
// A state whose window is that of its birth leases nothing ahead: after a loss, Next is then what the views tell, and
// nothing is counted twice.

// AheadPeriod is the shortest period, in µs, of a window that is leased ahead. In a shorter one such a lease would
// hardly live for MinLease.
const AheadPeriod = 5 * MinLease

// busy returns the count above which a window may run out.
func (w Window) busy() int64 { return w.Rate - ceilDiv(w.Rate, 8) }

// share returns an equal share of the units up to busy.
func (w Window) share(op Op) int64 { return w.busy() / max(op.Div/2, 1) }

// roomy reports whether a short window has enough units for all: this one is not near its limit, and neither was the
// last one. An unused unit then costs little, and a unit too few costs another sync.
func (w Window) roomy(s *State, at int64) bool {
	return w.Period <= WindowLease && s.Prev <= w.busy() && w.Level(*s, at) >= (w.Rate-w.busy())*w.Unit
}

// wants returns the units that the sender would lease if enough were free: the demand of the rest of the window, of
// WindowLease at most, with a margin, and at most 1/Div of the free units. The part is larger in a roomy window. At the
// end of a fixed window it is up to eight units for a process that wants a quarter more than its share and will use
// them. More units are refused to others before they are used.
func (w Window) wants(s *State, op Op, life, free, at int64) int64 {
	if op.Div <= 0 || op.Demand <= 0 {
		return 0
	}
	part := free / op.Div
	switch all := float64(op.Demand) * float64(w.Period) / 1e9; {
	case w.roomy(s, at):
		part = max(part, w.share(op)/2)
	case !w.Sliding && float64(all*float64(op.Div)) >= float64(w.Rate)*2.5:
		part = max(part, min(w.share(op)/4, 8))
	}
	mu := float64(op.Demand) * float64(min(life, WindowLease)) / 1e9
	return max(0, min(part, w.margin(s, mu, 1.5, at)))
}

// margin returns the units to lease for an expected demand: more in a roomy window. Elsewhere it is less by some
// standard deviations, since an unused unit is refused to others. In a long window one is enough, because later calls
// use what is left over.
func (w Window) margin(s *State, mu, less float64, at int64) int64 {
	switch {
	case w.roomy(s, at):
		less = -1.5
	case w.Period > WindowLease:
		less = 1
	}
	return int64(math.Floor(mu - float64(less*math.Sqrt(mu))))
}

// rest returns the units that a sliding window will probably still need. If the windows are roomy, these are at most
// those that the last window needed, and if this window has used more than the last one, only the excess goes on at its
// pace: units leased before the window began are in Cur from the start, so the pace of Cur would tell too much.
// Otherwise all of Cur goes on at its pace.
func (w Window) rest(s *State, at int64) int64 {
	left := w.end(s) - at
	pace := func(units int64) float64 { return float64(units) * float64(left) / float64(max(w.Period-left, 1)) }
	rest := pace(s.Cur)
	switch {
	case !w.roomy(s, at):
	case s.Cur > s.Prev:
		rest = pace(s.Cur - s.Prev)
	default:
		rest = math.Min(rest, float64(s.Prev-s.Cur))
	}
	return int64(math.Min(math.Ceil(rest), float64(w.Rate)))
}

// leaseAhead sizes a lease of the next window, and takes it. No process gets more than its share, because others would
// be refused the units that it does not use.
func (w Window) leaseAhead(s *State, op Op, ans *Answer, at int64) {
	if op.Div <= 0 || op.Demand <= 0 || w.Period < AheadPeriod || w.FromUse || w.has(s, s.Born) {
		return
	}
	room, share := w.busy()-s.Debt-s.Next-w.low(op.Floor), w.share(op)
	if w.Sliding {
		// The units that this window still needs are kept, with a reserve. The share is the same for the first process
		// and for the last one.
		room += w.Rate - w.busy() - w.rest(s, at) - w.Rate/16 - s.Cur
		share = max(room+s.Next, 0) / max(op.Div/2, 1)
	}
	want := w.margin(s, float64(op.Demand)*float64(min(w.Period, WindowLease))/1e9, 2, at)
	if lease := min(want, share, room); lease > 0 {
		ans.Lease, ans.Life, ans.Gen = lease, Generation, w.next(s)
		s.Next += lease
		s.Since += min(lease, exact-s.Since)
	}
}

// unleaseAhead takes returned units off the next window. Since they are not units of this one, Late hides them from the
// merge in the window of Born.
func (s *State) unleaseAhead(n int64) {
	since := s.Since
	s.Next, s.Since = max(s.Next-n, 0), max(s.Since-n, 0)
	s.Late -= since - s.Since
}
