package permits

import (
	"cmp"
	"maps"
	"slices"
)

// MaxSuspects is the most processes that a heartbeat asks for.
const MaxSuspects = 64

// look is what a process knows of a suspect: a holder of a key at which the process was refused.
type look struct {
	named int64 // ns; the last refusal that named it
	beat  int64 // its last heartbeat
	since int64 // ns; the time at which this process saw that heartbeat first
	at    int64 // ns; the last look; 0: none
	sent  int64 // ns; that look was sent
	dead  bool
}

// suspected returns the time for which a refusal is a reason to look at the holders that it named: until the life of a
// holding is seen to pass between two heartbeats, also if no other call comes.
func suspected(period int64) int64 { return 2*period + life(period) }

// Suspect notes the holders that a refusal named.
func (m *Member) Suspect(holders []Claim, now int64) {
	if m.looks == nil && len(holders) > 0 {
		m.looks = map[string]look{}
	}
	for _, h := range holders {
		l := m.looks[h.Process]
		l.named = now
		m.looks[h.Process] = l
	}
}

// suspects returns the processes to look at. The first are those whose heartbeat did not change, and then those at
// which the last look is the oldest.
func (m *Member) suspects(now int64) []string {
	maps.DeleteFunc(m.looks, func(_ string, l look) bool { return now-l.named > suspected(m.Period) })
	if len(m.looks) == 0 {
		return nil
	}
	all := slices.Sorted(maps.Keys(m.looks))
	rank := func(l look) int64 {
		if l.at > l.since {
			return -1
		}
		return l.at
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(rank(m.looks[a]), rank(m.looks[b])) })
	return all[:min(len(all), MaxSuspects)]
}

// look notes the last heartbeat of a suspect. A holder is dead if its heartbeat has not changed for as long as a
// holding lives.
func (m *Member) look(process string, beat, sent, now int64) {
	l, ok := m.looks[process]
	if !ok {
		return
	}
	if l.at == 0 || l.beat != beat {
		l.beat, l.since = beat, now
	}
	l.at, l.sent, l.dead = now, sent, sent-l.since >= m.life()
	m.looks[process] = l
}

// Dead reports whether a process is dead, by the last look at it, if that was sent after a time (ns): see
// Holding.Accuse.
func (m *Member) Dead(process string, heard int64) bool {
	l := m.looks[process]
	return l.dead && l.sent >= heard
}
