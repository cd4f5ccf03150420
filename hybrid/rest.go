package hybrid

import "sync"

// This file is how a key lies in memory. What a key needs while something is
// on its way, waits, or is booked is several times what it needs between
// calls. So an entry is small, and the whole of it is there only while its lock
// is held, and as long as it says more than fits.

// whole is all of an entry that its lock guards.
type whole struct {
	state   state
	waiters []*waiter
	carried int    // how many of waiters are in the frozen op
	sent    *rules // that the frozen op was made with
}

// resting is a state with one plain lease at most, nothing on its way, and what
// is owed of one window; of a log, what Redis refused last.
type resting struct {
	units, end int64 // of the lease
	pending    int64 // as state.pending, all of the view's window
	view       view
	demand     demand
	word       uint64
}

// refusedBy marks a view that holds a refusal. Nothing is born before Redis's
// clock began.
const refusedBy = -1

func (r *resting) expand() (s state) {
	s.leases[0].units, s.leases[0].end, s.pending = r.units, r.end, r.pending
	s.view, s.demand, s.word = r.view, r.demand, word{wordKindOf(r.word), wordUnits(r.word)}
	if v := r.view; v.born == refusedBy {
		s.view, s.refusal = view{}, refusal{n: v.level, until: v.turn, relook: v.relook, left: v.cap, reset: v.ends}
	}
	if s.pending > 0 && s.view.known {
		s.window = s.view.window
	}
	return s
}

func rest(s *state) resting {
	r := resting{s.leases[0].units, s.leases[0].end, s.pending, s.view, s.demand, packWord(0, s.word)}
	if f := s.refusal; f.n > 0 && s.view == (view{}) {
		r.view = view{level: f.n, turn: f.until, relook: f.relook, cap: f.left, ends: f.reset, born: refusedBy}
	}
	return r
}

var wholes = sync.Pool{New: func() any { return new(whole) }}

func (e *entry) lock() {
	e.mu.Lock()
	e.wake()
}

func (e *entry) tryLock() bool {
	if !e.mu.TryLock() {
		return false
	}
	e.wake()
	return true
}

func (e *entry) wake() {
	if e.whole == nil {
		e.whole = wholes.Get().(*whole)
		e.state = e.expand()
	}
}

func (e *entry) unlock() {
	e.settleDown()
	e.mu.Unlock()
}

// settleDown gives up what the entry does not need. That nothing is lost by it
// is looked at, not known: so a field that is added to state cannot be
// forgotten here.
func (e *entry) settleDown() {
	if len(e.waiters) > 0 || e.state.frozen {
		return
	}
	r := rest(&e.state)
	if r.expand() != e.state {
		return
	}
	e.resting = r
	*e.whole = whole{}
	wholes.Put(e.whole)
	e.whole = nil
}
