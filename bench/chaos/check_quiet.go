package main

import (
	"fmt"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// This file checks the books of the quiet moments: debited = admitted + held, except for units that are lost for a
// reason. Each reason has a counter of its own.

const (
	brokeQuiet  = "books at a quiet moment"
	brokeLosses = "lost units"
	brokeReturn = "return of leases"
)

// losses are the units of a run that Redis debited and that callers did not get (expired, lost), or that callers got
// and Redis did not debit (forgiven, dropped).
type losses struct {
	Expired int64 // leased units that ended unspent, for a reason in the evidence
	Free    int64 // leased units that ended unspent, of free leases of contended keys
	Lost    int64 // units granted to callers that had left, and returns that Redis did not take

	Forgiven int64 // units of the fallback that had refilled when Redis was back
	Dropped  int64 `json:",omitempty"` // units that Redis is never told of
}

const (
	// stalled is T: a sync, or a process, that stands still for longer may lose leases. A process returns a lease T
	// before its end.
	stalled = 50 * time.Millisecond
	// lateLease is the shortest life of a lease. A free lease whose answer takes longer may be over when it arrives.
	lateLease = 10 * time.Millisecond
	// leaseLife is the longest life of a lease. After a disturbance, units may expire for that time.
	leaseLife = 4 * time.Second
	// longestTurn is the longest time for which units stay contended after a denial.
	longestTurn = 5 * time.Second
)

// checkQuiet checks each quiet moment, and the phase of the run that ends with it.
func (v *verdict) checkQuiet(e *evidence) {
	var before moment
	for i := range e.moments {
		m := &e.moments[i]
		if i == 0 {
			before.books, before.keys = make([]standing, len(m.books)), map[string]account{}
		}
		v.checkMoment(e, &before, m)
		before = *m
	}
	slept := time.Duration(0) // the longest oversleep of a canary after the last fault
	for _, w := range e.clients {
		if !w.killed {
			slept = max(slept, noise(w.naps(), e.back, math.MaxInt64))
		}
	}
	most := givesBack.on(e.cpu) + slept
	v.want(e.load.days() || e.returned <= most, brokeReturn,
		"clients held leased units for %v after the end of the load, want at most %v", e.returned, most)
}

func (v *verdict) checkMoment(e *evidence, before, m *moment) {
	same, calm := true, true
	debited, known, uncertain := m.sums.debited-before.sums.debited, int64(0), int64(0)
	contended := e.contended(before, m)
	for i, now := range m.books {
		was := before.books[i]
		if now.killed {
			same = same && was.killed
			continue
		}
		known += now.known() - was.known()
		uncertain += now.stats.Uncertain - was.stats.Uncertain
		excuse := e.excuse(i, was, m)
		calm = calm && excuse == ""
		v.checkStanding(e, i, was, m, excuse, contended)
	}
	if !same {
		return // the units of the killed client are in the check of the end
	}
	if m.name == quietBack {
		uncertain += e.void()
	}
	v.want(debited >= known && debited <= known+uncertain, brokeQuiet,
		"%s: Redis debited %d units since the quiet moment before, the clients know of %d, and %d are uncertain",
		m.name, debited, known, uncertain)
	if calm {
		v.checkKeys(e, before, m, contended)
	}
}

// known returns the units that a client knows to be debited.
func (st *standing) known() int64 {
	s := &st.stats
	return st.admitted + s.Held + s.Expired + s.Lost - s.Owed - s.Dropped - s.Forgiven
}

// checkStanding checks the books of a client. excuse is the reason for which the client may have lost units; "": there
// is none.
func (v *verdict) checkStanding(
	e *evidence, i int, was standing, m *moment, excuse string, contended map[string]int64,
) {
	now := m.books[i]
	s := &now.stats
	v.want(s.Owed == 0, brokeQuiet, "%s: client %d owes %d units", m.name, i, s.Owed)
	v.want(m.name != quietAtRest || s.Held == 0 || e.load.days(), brokeReturn,
		"%s: client %d holds %d units", m.name, i, s.Held)
	v.checkBooks(brokeQuiet, fmt.Sprintf("%s: client %d", m.name, i), now)
	l := &v.Losses
	expired, lost := s.Expired-was.stats.Expired, s.Lost-was.stats.Lost
	forgiven, dropped := s.Forgiven-was.stats.Forgiven, s.Dropped-was.stats.Dropped
	l.Lost, l.Forgiven, l.Dropped = l.Lost+lost, l.Forgiven+forgiven, l.Dropped+dropped
	local := now.alone - was.alone
	v.want(forgiven <= local, brokeLosses, "%s: client %d forgave %d units, its fallback admitted %d",
		m.name, i, forgiven, local)
	refused := now.hub.Refused != was.hub.Refused || now.hub.Renamed != was.hub.Renamed
	v.want(dropped <= 0 || refused, brokeLosses, "%s: client %d dropped %d units, and Redis refused none",
		m.name, i, dropped)
	if excuse != "" {
		l.Expired += expired
		return
	}
	free := int64(0)
	for _, units := range contended {
		free += units
	}
	l.Free += min(expired, free)
	l.Expired += max(0, expired-free)
	left, late := e.clients[i].late(m)
	older := int64(0)
	if e.outlived(m) {
		older = was.stats.Held
	}
	most := free + left + older
	all := most
	if late {
		all += free
	}
	v.want(expired <= most && expired+lost <= all, brokeLosses,
		"%s: %d units of client %d expired and %d are lost, without a reason: %d calls have left, "+
			"free leases can have at most %d units, and %d are older than the fault", m.name, expired, i, lost, left, free, older)
}

// outlived reports whether units that were held at the quiet moment before m may be of a state or a time that Redis has
// lost. Redis does not take these back.
func (e *evidence) outlived(m *moment) bool {
	return (e.allowed.seconds > 0 || e.allowed.steps) && m.from < e.over+int64(leaseLife)
}

// late returns the number of calls for one unit that stopped waiting for Redis in the phase before m or in the life of
// a lease before that. The units that Redis granted them expire or are lost. late reports whether an answer of Redis
// took longer than the shortest life of a free lease.
func (w *witness) late(m *moment) (left int64, late bool) {
	for r := range w.during(m) {
		if r.kind == recordDecision && r.took >= maxWait {
			left++
		}
		late = late || (r.kind == recordSync || r.kind == recordNap) && r.took > lateLease
	}
	return left, late
}

// checkKeys checks each key in a phase in which no client had a reason to lose units: what is debited is admitted or
// held. Only contended keys have free leases, which cannot be returned. Units that were granted to callers that had
// left expire or are lost, and so do those of a state that Redis has lost.
func (v *verdict) checkKeys(e *evidence, before, m *moment, contended map[string]int64) {
	left := int64(0)
	for i := range m.books {
		n, _ := e.clients[i].late(m)
		left += n
	}
	for key, a := range m.keys {
		lacks, most := a.gap()-before.keys[key].gap(), contended[key]*int64(len(m.books))+left
		if e.outlived(m) {
			most += before.keys[key].held
		}
		v.want(lacks >= 0 && lacks <= most, brokeQuiet, "%s: key %s: of the units debited since the quiet moment before, "+
			"%d are neither admitted nor held, want 0 to %d: %+v", m.name, key, lacks, most, a)
	}
}

// contended returns the keys of which a process may have had a free lease in the phase between two moments: calls for
// them were denied, or Redis wrote a next poll. It writes one without a denial if a lease leaves less than a unit. The
// value is the most that such a lease has for one client: the demand of one second.
func (e *evidence) contended(before, m *moment) map[string]int64 {
	out := map[string]int64{}
	for _, s := range e.load.Streams {
		for i := range s.Keys {
			if key := s.key(i); m.turns[key] > before.turns[key] {
				out[key] = e.load.demand(s)
			}
		}
	}
	for _, r := range e.of(recordDecision) {
		denied := !r.allowed && (r.source == hybridlimit.SourceRedis || r.source == hybridlimit.SourceDenyCache)
		if denied && r.begin >= m.from-int64(longestTurn) && r.begin <= m.at {
			s := e.load.Streams[r.stream]
			out[s.key(int(r.key))] = e.load.demand(s)
		}
	}
	return out
}

// excuse returns the reason for which client i may have lost units in the phase before m; "": there is none. A premise
// of the guarantee did not hold: Redis answers within MaxWait and keeps its memory, its clock does not step, and the
// process runs.
func (e *evidence) excuse(i int, was standing, m *moment) string {
	w, now := &e.clients[i], m.books[i]
	switch a := e.allowed; {
	case m.name == quietBack && a.seconds > 0, now.stats.Resynced > was.stats.Resynced, now.hub.Gaps > was.hub.Gaps:
		return "Redis lost its memory"
	case m.name == quietBack && e.border > 0:
		return "the day ended"
	case m.name == quietBack && a.steps:
		return "the clock of Redis stepped"
	}
	for r := range w.during(m) {
		switch {
		case r.kind == recordSync && r.failed:
			return "a sync failed"
		case r.kind == recordSync && r.took > stalled:
			return fmt.Sprintf("a sync took %v", r.took)
		case r.kind == recordNap && r.took > stalled:
			return fmt.Sprintf("the process stood still for %v", r.took)
		}
	}
	return ""
}
