package inflight

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/clock"
	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// Env is what calls in flight need of their hub.
type Env struct {
	Context  context.Context // ends with Close
	Clock    *clock.Clock
	Log      *tell.Log
	Names    lua.Names
	Runner   *runner.Runner
	Engine   *ratesync.Engine
	Breaker  func(tag int) *circuit.Breaker
	Broken   func(tag int) bool // Redis does not answer
	Away     func() bool        // a part of Redis does not answer
	Event    func()             // a call came: see member.Pace.Event
	Renamed  func(tag int)      // another process uses the identity
	Begin    func() bool        // counts a goroutine; false: the hub is closed
	End      func()             // of a goroutine that Begin or the caller of Run has counted
	Limiters func() []*Limiter  // all, also closed ones with running calls
}

// Members is what the limiters of calls in flight of a hub share: the membership of the process in the fleet, the
// messages, and the planned times. It implements member.Permits. internal/permits has the protocol.
//
// Locks are taken in this order: a lane, a shard or the hub's, mu, the waker's. None is held across a message or a
// callback.
type Members struct {
	env      Env
	awake    atomic.Bool // there is or was a limiter
	waker    *waker
	lanes    []lane // one for each tag
	standing atomic.Pointer[standing]
	keys     atomic.Int64 // in memory, of all limiters
	Messages atomic.Uint64
	Ops      atomic.Uint64
	Failed   atomic.Uint64 // messages without an answer
	Renames  atomic.Uint64 // identities given up, because another process used them
	refresh  atomic.Bool   // the limits may have changed: the waker visits all keys
	recheck  atomic.Bool   // Redis may have gone or come: the waker visits the keys with waiting calls

	mu      sync.Mutex // guards the fields below
	process string     // the identity
	member  permits.Member
	missed  bool                // the last heartbeat had no answer
	accuses map[*entry]struct{} // keys that wait for the heartbeats of the holders that stand in their way
}

// standing is what decisions know of the membership.
type standing struct {
	permits.Standing
	joins bool   // no heartbeat has failed: the process will soon be a member again
	good  uint64 // the last epoch of the hub's clock in which the process certainly is a member; 0: read the clock
}

// lateTicker is the time (ns) by which the ticker may be late, so that the fast path still sees the end of the
// membership in time. Only a process that does not run at all can be later.
const lateTicker = int64(300 * time.Millisecond)

// NewMembers returns the membership of a process that has an identity.
func NewMembers(process string, env Env) *Members {
	m := &Members{
		env: env, waker: newWaker(env.Clock), lanes: make([]lane, env.Names.Tags), process: process, accuses: map[*entry]struct{}{},
	}
	m.member.Period = int64(member.PulseEvery)
	for tag := range m.lanes {
		m.lanes[tag].members, m.lanes[tag].tag = m, tag
	}
	m.publish()
	return m
}

// publish makes the membership known to decisions. mu is held, or nothing else runs yet.
func (m *Members) publish() {
	st := &standing{Standing: m.member.Standing(), joins: !m.missed}
	if m.keys.Load() > 0 { // else the ticker would run in an idle process
		if epoch, now := m.env.Clock.Stamp(); st.Until-lateTicker > now {
			st.good = clock.GoodUntil(epoch, now, st.Until-lateTicker)
		}
	}
	m.standing.Store(st)
}

// Beat returns the part of a heartbeat that is sent now; nil if the hub has no limiter of calls in flight.
func (m *Members) Beat() *permits.Pulse {
	if !m.Awake() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.member.Beat(m.env.Clock.Now())
	return &p
}

// Miss notes that a heartbeat had no answer. Calls that wait for it go on by the fallback.
func (m *Members) Miss(p *permits.Pulse) {
	if p == nil {
		return
	}
	m.mu.Lock()
	m.member.Missed(*p)
	m.missed = true
	m.publish()
	m.mu.Unlock()
	m.LookAgain()
}

// Beaten takes the answer to a heartbeat.
func (m *Members) Beaten(p *permits.Pulse, sent, received, losses int64, beats []int64) {
	if p == nil {
		return
	}
	m.mu.Lock()
	before := m.member.Standing()
	again := m.member.Beaten(*p, sent, received, losses, beats)
	touched, was := m.member.Touched(), m.missed
	m.missed = false
	m.publish()
	accuses := make([]*entry, 0, len(m.accuses))
	for e := range m.accuses {
		accuses = append(accuses, e)
	}
	joined := !before.Live(received)
	m.mu.Unlock()
	switch {
	case again:
		m.each(func(e *entry) { e.tell(touched, received) })
	case was || joined:
		m.LookAgain()
	}
	for _, e := range accuses {
		e.accuse(received)
	}
}

// Holds reports whether the process holds permits, or has calls that wait for some.
func (m *Members) Holds() bool { return m.keys.Load() > 0 }

// Wake reports whether this is the first limiter: the caller then counts a goroutine, and starts Run in it.
func (m *Members) Wake() bool { return !m.awake.Swap(true) }

// Awake reports whether the hub has, or had, a limiter of calls in flight.
func (m *Members) Awake() bool { return m.awake.Load() }

// Live reports whether the process may use the permits that it holds.
func (m *Members) Live() bool { return m.standing.Load().Live(m.env.Clock.Now()) }

// LookAgain makes the waker visit the keys with waiting calls.
func (m *Members) LookAgain() {
	m.recheck.Store(true)
	m.waker.stir()
}

// Changed makes the waker visit all keys, because limits may have changed.
func (m *Members) Changed() {
	m.refresh.Store(true)
	m.waker.stir()
}

// Run is the goroutine of the waker, until the hub closes.
func (m *Members) Run() {
	defer m.env.End()
	m.waker.run(m.env.Context, m.visit)
}

// visit does the work of LookAgain and Changed.
func (m *Members) visit() {
	all, waiting := m.refresh.Swap(false), m.recheck.Swap(false)
	if !all && !waiting {
		return
	}
	now := m.env.Clock.Now()
	m.each(func(e *entry) {
		e.shard.mu.Lock()
		if e.dropped || !all && e.Waiting() == 0 {
			e.shard.mu.Unlock()
			return
		}
		if all {
			e.tune(e.lim.known(e), e.own, now)
		}
		e.turn(now)
	})
	if waiting {
		for i := range m.lanes {
			m.lanes[i].start()
		}
	}
}

// known returns the present limit of a key without a question to LimitFor. The entry is locked.
func (l *Limiter) known(e *entry) int64 {
	if limit, ok := l.control.Listed(e.key); ok {
		return limit.BurstSize()
	}
	if e.own {
		return e.limit
	}
	return l.control.PlanOf(e.key).Limit.BurstSize()
}

// each calls f for every key of all limiters, without a lock.
func (m *Members) each(f func(*entry)) {
	for _, l := range m.env.Limiters() {
		l.each(f)
	}
}

// tell tells the holding of a key again. touched is the time of Member.Touched.
func (e *entry) tell(touched, now int64) {
	e.shard.mu.Lock()
	if e.dropped {
		e.shard.mu.Unlock()
		return
	}
	e.Tell(touched)
	e.turn(now)
}

// accuse takes the holdings of dead processes off that stand in the way of a key's calls.
func (e *entry) accuse(now int64) {
	m := e.lim.members
	e.shard.mu.Lock()
	m.mu.Lock()
	c := e.lim.conditions(e, now)
	if more := !e.dropped && e.Accuse(&c, now, m.member.Dead); !more {
		delete(m.accuses, e)
	}
	m.mu.Unlock()
	if e.dropped {
		e.shard.mu.Unlock()
		return
	}
	e.turn(now)
}

// suspect notes the holders that a refusal of a key has named.
func (m *Members) suspect(e *entry, holders []permits.Claim, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.member.Suspect(holders, now)
	m.accuses[e] = struct{}{}
}

// loss notes that Redis has lost something.
func (m *Members) loss() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.member.Loss()
}

// identity returns the identity of the process.
func (m *Members) identity() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// Rename gives the process another identity, and takes its permits along. The process is not a member until a heartbeat
// of the new identity is answered. Only the heartbeat's goroutine calls Rename.
func (m *Members) Rename(process string) {
	if m.identity() == process {
		return
	}
	for i := range m.lanes { // no message is sent meanwhile
		m.lanes[i].mu.Lock()
	}
	m.mu.Lock()
	before := m.process
	m.process = process
	m.member.Rename()
	m.publish()
	m.mu.Unlock()
	m.each(func(e *entry) {
		e.shard.mu.Lock()
		e.Rename(before)
		e.shard.mu.Unlock()
	})
	for i := range m.lanes {
		m.lanes[i].rename()
		m.lanes[i].mu.Unlock()
	}
}

// chance returns a random number in [0, 1).
func chance() float64 { return rand.Float64() }
