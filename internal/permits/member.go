package permits

// Member is the membership of one process in its fleet, by its heartbeats. Times are ns. The zero Member, with a
// period, is not a member yet.
//
// A process is a member for 1.8 periods from the sending of its last answered heartbeat. Others take it as dead after
// they have seen the same heartbeat for 1.8 periods on their own clocks. So it stops first, and Redis's clock has no
// part in it.
type Member struct {
	Period int64 // from one heartbeat to the next; the same in the whole fleet

	alive   int64 // the time at which the last answered heartbeat was sent
	touched int64 // see Touched
	answers bool  // there is one
	broken  bool  // a heartbeat came too late, or none came yet
	session uint64
	losses  int64 // of the fleet, heard
	tells   int64 // own losses to tell

	looks map[string]look // at suspects
}

// Pulse is the part of a heartbeat that is about permits.
type Pulse struct {
	Losses   int64    // that the process tells
	Suspects []string // processes whose last heartbeat it asks for
}

// margin is the time by which a process stops before others may take it as dead, for clocks of different speed.
const margin = second / 50

// life returns the time for which a process is a member after a heartbeat.
func (m *Member) life() int64 { return life(m.Period) }

func life(period int64) int64 { return period * 9 / 5 }

// Standing returns the membership.
func (m *Member) Standing() Standing {
	s := Standing{Session: m.session}
	if m.answers && !m.broken {
		s.Until = m.alive + m.life() - margin
	}
	return s
}

// Loss notes that Redis has lost something: see Reply.Lost. The next heartbeat tells it, so that all processes tell
// their holdings.
func (m *Member) Loss() { m.tells++ }

// Beat returns the part of the heartbeat that is sent now.
func (m *Member) Beat(now int64) Pulse {
	p := Pulse{Losses: m.tells, Suspects: m.suspects(now)}
	m.tells = 0
	return p
}

// Missed notes that a heartbeat got no answer. The process may have told the losses, and tells them again.
func (m *Member) Missed(p Pulse) { m.tells += p.Losses }

// Beaten takes the answer to a heartbeat: the losses of the fleet, and the last heartbeat of each suspect. It reports
// whether all holdings must be told again, because the process was away or Redis has lost something.
func (m *Member) Beaten(p Pulse, sent, now, losses int64, beats []int64) (again bool) {
	if late := !m.answers || now >= m.alive+m.life()-margin; late && !m.broken {
		m.broken, m.touched = true, m.alive
	}
	if m.answers && sent <= m.alive {
		return false
	}
	m.alive, m.answers = sent, true
	if !m.broken {
		m.touched = now
	}
	for i, s := range p.Suspects {
		m.look(s, beats[i], sent, now)
	}
	again = losses != m.losses
	m.losses = losses
	if now >= sent+m.life()-margin {
		return false // not a member; the next answer in time begins a session
	}
	if m.broken {
		m.broken, again = false, true
		m.session++
	}
	return again
}

// Touched returns the time for Holding.Tell after Beaten. It is now, or the time before a cut-off: a failover in the
// meantime may have lost the last messages before it.
func (m *Member) Touched() int64 { return m.touched }

// Rename begins a new identity. The process is not a member until a heartbeat of it is answered.
func (m *Member) Rename() { m.answers, m.broken = false, true }
