package account

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/census"
)

// This file is the fleet of a world in which processes come and go: the real
// fleet.go around a set of heartbeats, which are answered at once or not at all.

// member is what the heartbeat knows, of one process.
type member struct {
	fleet  *census.Census
	beatAt int64 // ns; the next
	away   bool  // it is not running
	mute   int64 // so many beats will be lost
	most   int64 // the largest C since it last owed nothing
	paid   int64 // what that was when it last had paid
	owing  bool  // it has owed since, or could
}

// memberBook is the set in Redis, and what the bound is while N changes.
type memberBook struct {
	credit func(n int64) int64 // C in a fleet of n
	plan   *Plan
	beats  map[int]int64 // ns, by process
	ghosts []ghost
	bound  int64 // the largest sum of all C but the smallest, ghosts' included
	lost   int64 // ns; when the set was last lost
}

// ghost is a process that has gone: it may have taken what others still see, and
// on its own credit c.
type ghost struct{ born, at, c int64 }

// haunt notes that p is about to go.
func (w *world) haunt(p *proc) {
	if m := w.members; m != nil {
		m.ghosts = append(m.ghosts, ghost{p.born, w.now, max(p.most, p.paid)})
	}
}

// owe is the most that all but one may have admitted on credit: of the living,
// whose sum of C and least C are given, and of ghosts that were there together.
// A ghost that had gone before another came is in what that one saw.
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

// depart takes a process out that owes nothing. One that crashed has left its
// heartbeat behind.
func (w *world) depart(p *proc, crashed bool) {
	w.begin(p)
	if !crashed && (p.waiters.Len() > 0 || p.frozen != nil || !p.s.Idle()) {
		w.end(p)
		return
	}
	w.expired += p.s.Held()
	if !crashed {
		delete(w.members.beats, p.id)
		w.haunt(p)
	}
	w.logf("p%d departs", p.id)
	*p = proc{id: p.id, evicted: -1, member: member{away: true}}
}

// advance passes time, and beats in it.
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

// loseFleet empties the set. It takes three counts to get over that, so there
// is no second loss in that time.
func (w *world) loseFleet() {
	m := w.members
	if m == nil || w.now-m.lost < census.Kept*int64(census.Every) {
		return
	}
	clear(m.beats)
	m.lost = w.now
	w.logf("Redis loses the heartbeats")
}

// memberTerms is N and C as p knows them.
func (w *world) memberTerms(p *proc, t *Conditions) {
	if w.members == nil || p.away {
		return
	}
	t.N, t.Credit = p.fleet.Size(), 0
	if p.fleet.Known(w.now) || w.mutant == mutEagerNewcomer && p.fleet.Beats() > 0 {
		t.Credit = w.members.credit(t.N)
	}
}

// noteCredit keeps the bound: whoever has spoken to Redis last admits what it
// has, and all others what they may owe, at the C that they had when they
// began to. Ghosts count among them, and as having spoken last, until every
// view is younger.
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

// checkFleet holds that nobody who gives credit counts fewer than do. Two
// beats after a loss of heartbeats, and half of one more where one is lost on
// the way, all have counted all again: until then they may lack who came
// shortly before the loss or since.
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
