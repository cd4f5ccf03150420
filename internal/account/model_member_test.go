package account

import (
	"maps"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/census"
)

// This file models a fleet in which processes join and leave. It runs the real census over sets of heartbeats, one for each group
// of processes, and a directory of the groups. A process moves to another group now and then, as if it had a limiter more or
// less. A message is answered at once or lost. An idle process beats less often, and at once when it has an event.

// member is the heartbeat state of one process.
type member struct {
	fleet  *census.Census
	last   int64        // the last count
	knows  map[int]bool // groups in the last directory
	sent   int64        // number of heartbeats
	every  int64        // ns; the process has promised a heartbeat by then
	used   bool         // it had an event since the last heartbeat
	beatAt int64        // ns; time of the next heartbeat
	away   bool         // the process is not running
	mute   int64        // number of heartbeats that will be lost
	most   int64        // the largest C since the process last owed nothing
	paid   int64        // the value of most when it last owed nothing
	owing  bool         // it has owed units since then, or could have
}

// memberBook is the set of heartbeats in Redis, and the bound while N changes.
type memberBook struct {
	credit  func(n int64) int64 // C in a fleet of n processes
	plan    *Plan
	beats   map[int]pulse // by process
	groups  map[int]bool  // the directory
	paced   bool          // idle processes beat less often
	classes bool          // processes have one to three classes
	ghosts  []ghost
	bound   int64 // the largest sum of all C except the smallest, including those of ghosts
	lost    int64 // ns; time of the last loss of the set
}

// pulse is a heartbeat in Redis.
type pulse struct {
	group   int
	expires int64 // ns
	classes int64 // of the process
}

// paces are the times between two heartbeats of idle processes.
var paces = [...]int64{1, 3, 10}

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
		p.fleet, p.beatAt, p.every = new(census.Census), w.now, int64(census.Every)
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
	if p.every = int64(census.Every); !p.used && w.members.paced {
		p.every *= paces[p.id%len(paces)]
	}
	p.used = false
	p.beatAt += p.every
	if w.now < p.asleep {
		return
	}
	p.sent++
	group := (p.id + int(p.sent/4)) % 2
	for range 4 { // an answer without a group is not used
		if p.mute > 0 {
			p.mute--
			return
		}
		n, complete := w.members.beat(p, group, w.now)
		if w.mutant == mutUnweighted {
			n = int64(len(w.members.beats))
		}
		if complete || w.mutant == mutIncomplete {
			w.counted(p, n)
			return
		}
	}
}

// wake notes an event of p. If p has promised no heartbeat within the usual time, it sends one at once, after the event.
func (w *world) wake(p *proc) {
	if p.used = true; p.every > int64(census.Every) {
		p.beatAt, p.every = min(p.beatAt, w.now), int64(census.Every)
	}
}

// beat is the script of the heartbeat. It returns the count of the groups that p knows, and reports whether these are all.
func (m *memberBook) beat(p *proc, group int, now int64) (n int64, complete bool) {
	m.beats[p.id] = pulse{group, now + 3*p.every, m.weight(p)}
	live := map[int]bool{}
	for id, b := range m.beats {
		if b.expires < now {
			delete(m.beats, id)
			continue
		}
		live[b.group] = true
	}
	maps.DeleteFunc(m.groups, func(group int, _ bool) bool { return !live[group] })
	m.groups[group] = true
	for _, b := range m.beats {
		if b.group == group || p.knows[b.group] {
			n += b.classes
		}
	}
	complete = true
	for other := range m.groups {
		complete = complete && (other == group || p.knows[other])
	}
	p.knows = maps.Clone(m.groups)
	return n, complete
}

// counted gives p a count.
func (w *world) counted(p *proc, n int64) {
	before, first := p.fleet.Size(), p.fleet.Since()
	p.fleet.Counted(n, n, w.now, w.now)
	p.last = n
	if p.fleet.Size() != before || p.fleet.Since() != first { // there was a gap
		w.void(p)
	}
	w.checkFleet()
}

// size returns N as p knows it.
func (w *world) size(p *proc) int64 {
	if w.mutant == mutLastCount {
		return max(1, p.last)
	}
	return p.fleet.Size()
}

// gives reports whether p may give credit.
func (w *world) gives(p *proc) bool {
	switch w.mutant {
	case mutEagerNewcomer:
		return p.fleet.Known(w.now) || p.fleet.Beats() > 0
	case mutNoSilence:
		return p.fleet.Beats() >= 2 && w.now < p.fleet.Ends()
	}
	return p.fleet.Known(w.now)
}

// loseFleet empties the set. Recovery takes three counts, so there is no second loss in that time.
func (w *world) loseFleet() {
	m := w.members
	if m == nil || w.now-m.lost < census.Kept*int64(census.Every) {
		return
	}
	clear(m.beats)
	clear(m.groups)
	m.lost = w.now
	w.logf("Redis loses the heartbeats")
}

// memberTerms sets N and C to the values that p knows.
func (w *world) memberTerms(p *proc, t *Conditions) {
	if w.members == nil || p.away {
		return
	}
	t.N, t.Credit = w.size(p), 0
	if w.gives(p) {
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
			if !p.away && (!p.s.view.known() || p.s.view.sent <= g.at) {
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
// the way. Until then the count may lack processes that joined after the loss, or less than census.Stale before it: the
// heartbeats of a process that gives credit may be so far apart. An idle process that wakes up is a case of this.
func (w *world) checkFleet() {
	const beat = int64(census.Every)
	m := w.members
	var givers []*proc
	for _, p := range w.procs {
		if p.away || w.now < p.asleep || w.terms(p).Credit <= 0 || w.now <= m.lost+beat+int64(census.Stale) && p.fleet.Since() > m.lost-int64(census.Stale) {
			continue
		}
		givers = append(givers, p)
	}
	accounts := int64(0)
	for _, p := range givers {
		accounts += m.weight(p)
	}
	for _, p := range givers {
		if n := w.size(p); n < accounts {
			w.fail("p%d counts %d, and %d give credit", p.id, n, accounts)
		}
	}
}
