package main

// op is a message's part about one key. Its counts are absolute, so a lost answer needs no repair.
type op struct {
	proc, key int
	keep      int64  // permits that the process keeps, its running calls among them
	want      int64  // its waiting calls
	spare     int64  // permits that it could use soon
	had       int64  // booked by the last answer
	known     uint64 // number of the message of the last answer; 0: none
	rejoins   bool   // the process knows that its holdings had ended
	gen       int64  // of renewals: the generation of the booking
	born      float64
	claims    map[int]uint64 // of members: holdings of dead processes, by process, and the message that wrote them
}

// reply is the answer to an op.
type reply struct {
	keep, granted int64
	usable        int64 // of keep; the rest is booked for running calls, and free when they end
	gen           int64
	born          float64
	free          int64          // what is left
	scarce        bool           // somebody was refused in the last second
	lost          bool           // Redis had forgotten the holding
	holders       map[int]uint64 // of members, if refused
}

// message is a process's ops, sent again until they are answered.
type message struct {
	proc   int
	number uint64
	after  uint64  // number of the last message whose answer came
	knows  float64 // the epoch that the process knows; 0: none
	ops    []op
}

// answered is the reply to a message.
type answered struct {
	replies []reply
	epoch   float64
}

// server is the state in Redis.
type server struct {
	w        *world
	state    state
	step     float64 // of its clock
	snapshot *state  // of the replica
}

// state is everything that Redis can lose.
type state struct {
	epoch     float64 // when the memory began; 0: it has to begin
	learn     float64 // nothing is granted before
	envelopes map[int]envelope
	renewed   map[int]*generations // by key, of renewals
	held      map[int]*held        // by key, of members
	beats     map[int]float64      // last heartbeat by process
	losses    int                  // times that a process told of a loss; heard with the heartbeat
}

// envelope keeps the last answer for a process, so that a message takes effect once.
type envelope struct {
	number uint64
	answer answered
}

func newServer(w *world) *server {
	s := &server{w: w}
	s.wipe()
	s.state.epoch = -1e9 // long before
	return s
}

func (s *server) wipe() {
	s.state = state{envelopes: map[int]envelope{}, renewed: map[int]*generations{}, held: map[int]*held{}, beats: map[int]float64{}}
}

// evict loses one key.
func (s *server) evict(key int) {
	delete(s.state.renewed, key)
	delete(s.state.held, key)
}

func (s *server) clock() float64 { return s.w.now + s.step }

// replicate keeps what a replica has; failOver goes on with it.
func (s *server) replicate() { c := s.state.clone(); s.snapshot = &c }

func (s *server) failOver() {
	if s.snapshot != nil {
		s.state = s.snapshot.clone()
	}
}

func (st state) clone() state {
	c := st
	c.envelopes, c.beats = map[int]envelope{}, map[int]float64{}
	for k, v := range st.envelopes {
		c.envelopes[k] = v
	}
	for k, v := range st.beats {
		c.beats[k] = v
	}
	c.renewed, c.held = map[int]*generations{}, map[int]*held{}
	for k, v := range st.renewed {
		c.renewed[k] = v.clone()
	}
	for k, v := range st.held {
		c.held[k] = v.clone()
	}
	return c
}

// receive applies a message once. ok is false for one that came after its successor.
func (s *server) receive(m message) (a answered, ok bool) {
	st, now := &s.state, s.clock()
	if st.epoch == 0 {
		st.epoch, st.learn = now, now+3*s.w.period
	}
	if e, seen := st.envelopes[m.proc]; seen && s.w.mutant != "envelope" {
		if e.number == m.number {
			return e.answer, true
		}
		if e.number > m.number {
			return answered{}, false
		}
	}
	gap := m.knows != 0 && (m.knows != st.epoch || st.envelopes[m.proc].number < m.after)
	if s.w.mutant == "gap" {
		gap = false
	}
	if gap { // writes are lost: all that processes hold may be more than is booked
		st.learn = max(st.learn, now+3*s.w.period)
	}
	a.epoch = st.epoch
	for _, o := range m.ops {
		if s.w.design == renewals {
			a.replies = append(a.replies, st.renew(s.w, o, now))
		} else {
			a.replies = append(a.replies, st.hold(s.w, o, m.number, now, gap))
		}
	}
	st.envelopes[m.proc] = envelope{max(m.number, st.envelopes[m.proc].number), a}
	return a, true
}

// grant divides what is free among the waiting calls of one process and its spare permits.
func grant(o op, free int64, procs int) int64 {
	return max(0, min(free, max(o.want, o.want+min(o.spare, free/int64(2*procs)))))
}
