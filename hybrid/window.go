package hybrid

// This file is what windows have of their own. A view, and a lease, dies with
// its window: what is left of the next one only Redis can say. So the first
// call of each process and window asks.

// windowed says whether the limit counts in windows.
func (t *terms) windowed() bool { return t.window.Period > 0 }

// fresh says whether the view still says something: that of a window until the
// earliest moment at which the window may be over.
func (s *state) fresh(now int64) bool {
	return s.view.known && (s.view.ends == 0 || now < s.view.ends)
}

// outlasts says whether the view is good for so long, in ns. A word of credit
// may be spent until two ticks after its end, and counts in the view's window.
func (s *state) outlasts(now, d int64) bool {
	return s.view.ends == 0 || now+d <= s.view.ends
}

// closedUntil is provedUntil for windows: until enough has come back, and until
// the window may be over at the latest.
func (s *state) closedUntil(t *terms, n int64) int64 {
	missing := (n+s.owedHere()-s.back())*t.bucket.Unit - s.view.level
	switch {
	case missing <= 0:
		return 0
	case s.view.refill == 0:
		return s.view.ends
	}
	return min(s.view.ends, s.view.sent+(missing+s.view.refill-1)/s.view.refill*1000)
}

// owedHere is what is owed and counts in the view's window. What is owed of the
// last one takes nothing from a fixed window, and from a sliding one less and
// less: it proves no denial.
func (s *state) owedHere() (units int64) {
	if s.window == 0 || s.window == s.view.window {
		units = s.pending
	}
	if s.sentIn == 0 || s.sentIn == s.view.window {
		units += s.inflight
	}
	return units
}

// owe admits units on credit. They count in the window of the view that they
// were admitted on; what is of several counts where it arrives.
func (s *state) owe(units int64) {
	if units == 0 {
		return
	}
	window := int64(0)
	if s.view.known {
		window = s.view.window
	}
	if s.pending == 0 {
		s.window = window
	} else if s.window != window {
		s.window = 0
	}
	s.pending += units
}

// stayAway puts off a process that a sliding window refused until a unit for
// each of the fleet has come back. Redis keeps no turns of windows, and without
// this every call that it refuses asks it again: as many ops per admission as
// the fleet asks times its limit. With it that is two at most, since a process
// that does get its unit need not stay away.
func (s *state) stayAway(t *terms) {
	if s.view.refill > 0 && t.n > 1 && s.view.level < t.n*t.bucket.Unit {
		s.view.turn = min(s.view.ends, s.view.received+t.n*t.bucket.Unit/s.view.refill*1000)
	}
}

// enter notes what of an answer is of a window: when the view dies, and
// that Redis gives no turns.
func (s *state) enter(t *terms, a answer) {
	if !t.windowed() {
		return
	}
	s.view.turn = 0
	// The window that ends then, which is not that of redisNow while a clock
	// that stepped back is before it.
	s.view.refill, s.view.window = a.Refill, t.window.Number(a.redisNow+a.Ends)-1
	s.view.ends = a.sent + a.Ends*1000
}
