package account

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/census"
)

// This file models a fleet in which processes join and leave. It runs the real census over a set of heartbeats. A heartbeat is
// answered at once or lost.

// member is the heartbeat state of one process.
type member struct {
	fleet  *census.Census
	beatAt int64 // ns; time of the next heartbeat
	away   bool  // the process is not running
	mute   int64 // number of heartbeats that will be lost
	most   int64 // the largest C since the process last owed nothing
	paid   int64 // the value of most when it last owed nothing
	owing  bool  // it has owed units since then, or could have
}

// memberBook is the set of heartbeats in Redis, and the bound while N changes.
type memberBook struct {
	credit func(n int64) int64 // C in a fleet of n processes
	plan   *Plan
	beats  map[int]int64 // ns, by process
	ghosts []ghost
	bound  int64 // the largest sum of all C except the smallest, including those of ghosts
	lost   int64 // ns; time of the last loss of the set
}

// ghost is a process that has ended. It may have taken units that the others still see in their views, and up to c units on its
// own credit.
type ghost struct{ born, at, c int64 }

// haunt records that p is about to end.
func (w *world) haunt(p *proc) {
	if m := w.members; m != nil {
		m.ghosts = append(m.ghosts, ghost{p.born, w.now, max(p.most, p.paid)})
	}
}

// owe returns the most units that all processes but one may have admitted on credit. The living processes are given by the sum
// of their C and the smallest C. Ghosts count if they ran at the same time. If one ghost ended before another started, the
// later one saw its units.
func (m *memberBook) owe(living, least int64) int64 {
	most := living - least
	for _, g := range m.ghosts {
		sum, least := living, least
		for _, h := range m.ghosts {
			if h.born <= g.at && g.at <= h.at {
				sum, least = sum+h.c, min(least, h.c)
			}
		}
		most = max(most, sum-least)
	}
	return most
}

func (w *world) join(p *proc) {
	if w.members != nil {
		p.fleet, p.beatAt = new(census.Census), w.now
	}
}

// depart removes a process that owes nothing. A crashed process leaves its heartbeat in the set.
func (w *world) depart(p *proc, crashed bool) {
	w.begin(p)
	if !crashed && (p.waiters.Len() > 0 || p.frozen != nil || !p.s.Forgettable(p.broken)) {
		p.s.Return()
		w.end(p)
		return
	}
	w.expired += p.s.Leased()
	if !crashed {
		delete(w.members.beats, p.id)
		w.haunt(p)
	}
	w.logf("p%d departs", p.id)
	*p = proc{id: p.id, evicted: -1, member: member{away: true}}
}

// advance lets time pass and runs the heartbeats that fall due.
func (w *world) advance(d int64) {
	until := w.now + d
	for w.members != nil {
		var next *proc
		for _, p := range w.procs {
			if !p.away && p.beatAt <= until && (next == nil || p.beatAt < next.beatAt) {
				next = p
			}
		}
		if next == nil {
			break
		}
		w.now = max(w.now, next.beatAt)
		w.beat(next)
	}
	w.now = until
}

func (w *world) beat(p *proc) {
	p.beatAt += int64(census.Every)
	if w.now < p.asleep {
		return
	}
	if p.mute > 0 {
		p.mute--
		return
	}
	b := w.members.beats
	for id, at := range b {
		if at < w.now-int64(census.Expiry) {
			delete(b, id)
		}
	}
	b[p.id] = w.now
	before, first := p.fleet.Size(), p.fleet.Since()
	p.fleet.Counted(int64(len(b)), w.now, w.now)
	if p.fleet.Size() != before || p.fleet.Since() != first { // there was a gap
		w.void(p)
	}
	if w.mutant == mutLastCount {
		for range census.Kept {
			p.fleet.Counted(int64(len(b)), w.now, w.now)
		}
	}
	w.checkFleet()
}

// loseFleet empties the set. Recovery takes three counts, so there is no second loss in that time.
func (w *world) loseFleet() {
	m := w.members
	if m == nil || w.now-m.lost < census.Kept*int64(census.Every) {
		return
	}
	clear(m.beats)
	m.lost = w.now
	w.logf("Redis loses the heartbeats")
}

// memberTerms sets N and C to the values that p knows.
func (w *world) memberTerms(p *proc, t *Conditions) {
	if w.members == nil || p.away {
		return
	}
	t.N, t.Credit = p.fleet.Size(), 0
	if p.fleet.Known(w.now) || w.mutant == mutEagerNewcomer && p.fleet.Beats() > 0 {
		t.Credit = w.members.credit(t.N)
	}
}

// noteCredit updates the bound. The process that spoke to Redis last admits its own units. All the others may owe units, up to
// the C that they had when they began to owe. Ghosts count among the others, and also as the last process, until all views are
// younger.
func (w *world) noteCredit(p *proc, c int64) {
	m := w.members
	if m == nil || p.away {
		return
	}
	switch {
	case p.s.owed() > 0 || p.word.Kind == CreditBudget:
		p.owing = true
	case p.owing:
		p.paid, p.most, p.owing = p.most, 0, false
	default:
		p.most = 0
	}
	p.most = max(p.most, c)
	m.ghosts = slices.DeleteFunc(m.ghosts, func(g ghost) bool {
		if w.now-g.at > 2*m.plan.Full {
			return true
		}
		for _, p := range w.procs {
			if !p.away && (!p.s.view.known || p.s.view.sent <= g.at) {
				return false
			}
		}
		return true
	})
	sum, least := int64(0), int64(1)<<62
	for _, p := range w.procs {
		if !p.away {
			c := max(p.most, w.terms(p).Credit)
			sum, least = sum+c, min(least, c)
		}
	}
	m.bound = max(m.bound, m.owe(sum, least))
	w.checkFleet()
}

// checkFleet verifies that a process that gives credit counts at least as many processes as there are that give credit. After a
// loss of heartbeats all processes are counted again after two heartbeats, plus half of another one if a heartbeat is lost on
// the way. Until then the count may lack processes that joined shortly before the loss or after it.
func (w *world) checkFleet() {
	const beat = int64(census.Every)
	m := w.members
	var givers []*proc
	for _, p := range w.procs {
		if p.away || w.now < p.asleep || w.terms(p).Credit <= 0 || w.now <= m.lost+beat+int64(census.Stale) && p.fleet.Since() > m.lost-beat {
			continue
		}
		givers = append(givers, p)
	}
	for _, p := range givers {
		if n := p.fleet.Size(); n < int64(len(givers)) {
			w.fail("p%d counts %d, and %d give credit", p.id, n, len(givers))
		}
	}
}
