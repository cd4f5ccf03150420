package main

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// This file takes the books at quiet moments. A moment is quiet if no call is made
// and every sync has been answered. Leases may be in hand.

// moment is the books of all clients and of Redis at one quiet moment.
type moment struct {
	name  string
	from  int64 // ns on the shared clock: the quiet moment before; 0: this is the first
	at    int64
	books []standing // of each client
	sums  sums       // of Redis
	keys  map[string]account
	turns map[string]int // writes of a state with a next poll, by key
}

// standing is the books of one client.
type standing struct {
	stats    hybrid.Stats
	hub      hybrid.HubStats
	admitted int64 // units that its callers were granted
	alone    int64 // the part of admitted by the fallback
	killed   bool
}

// account is the books of one key: units debited by Redis, granted to callers, and
// in hand.
type account struct{ debited, admitted, held int64 }

// gap returns the units that are debited and neither admitted nor held.
func (a account) gap() int64 { return a.debited - a.admitted - a.held }

// The quiet moments of a run, in order.
const (
	quietBefore  = "before the fault"
	quietBack    = "after the recovery"
	quietAfter   = "after a calm second"
	quietAtRest  = "after the return of the leases"
	calm         = time.Second            // of load without a fault
	leasesReturn = 2 * time.Second        // bound: by then no client holds a unit
	settlesIn    = 5 * time.Second        // after the load, all owed units are told by then, on a machine that is half idle
	settlesBusy  = 25 * time.Second       // the same on a busier machine, by the factor of the other bounds of time
	restless     = 20 * time.Millisecond  // interval of polls
	beforeFault  = 700 * time.Millisecond // of load between the first quiet moment and the fault
)

// rest stops the load, waits for a quiet moment and takes the books.
func (s *scene) rest(ctx context.Context, e *evidence, name string) error {
	if err := s.tellAll(orderStop); err != nil {
		return err
	}
	m := moment{name: name}
	if n := len(e.moments); n > 0 {
		m.from = e.moments[n-1].at
	}
	for begin, cpu := time.Now(), readCPU(); ; s.sleep(restless) {
		quiet, err := s.takeBooks(&m)
		if err != nil {
			return err
		}
		// Books that are not quiet in time are a finding of the check.
		if quiet || settled(time.Since(begin), cpu.busy(readCPU())) {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	e.moments = append(e.moments, m)
	return nil
}

// settled reports whether the books must be quiet after a time in which the processors were busy for a part of it, from 0 to 1.
func settled(after time.Duration, busy float64) bool {
	if busy > idleEnough {
		return after > settlesBusy
	}
	return after > settlesIn
}

// takeBooks fills in the moment. It reports whether the moment was quiet while it
// did.
func (s *scene) takeBooks(m *moment) (quiet bool, err error) {
	was, still, err := s.books()
	if err != nil {
		return false, err
	}
	m.at, m.keys, m.books = s.clock.now(), map[string]account{}, nil
	l, err := readLedger(s.world)
	if err != nil {
		return false, err
	}
	m.sums, m.turns = l.sum(), l.turns()
	for key, units := range l.byKey() {
		m.keys[key] = account{debited: units}
	}
	for i, c := range s.clients {
		history, err := readHistory(c.history)
		if err != nil {
			return false, err
		}
		st := standing{stats: was[i].Stats, hub: was[i].Hub, killed: c.killed}
		for _, r := range history {
			if r.kind != recordDecision || !r.allowed {
				continue
			}
			st.admitted += int64(r.units)
			if r.source == hybridlimit.SourceFallback {
				st.alone += int64(r.units)
			}
			name := s.plan.load.Streams[r.stream].key(int(r.key))
			a := m.keys[name]
			a.admitted += int64(r.units)
			m.keys[name] = a
		}
		m.books = append(m.books, st)
		if c.killed {
			continue
		}
		for key, held := range was[i].Held {
			a := m.keys[key]
			a.held += held
			m.keys[key] = a
		}
	}
	now, stillNow, err := s.books()
	if err != nil {
		return false, err
	}
	quiet = still && stillNow
	for i := range now {
		quiet = quiet && now[i].Syncs == was[i].Syncs && now[i].Stats.Held == was[i].Stats.Held && now[i].Stats.Expired == was[i].Stats.Expired
	}
	return quiet, nil
}

// books asks every client for its books. still reports whether no client owes
// units or waits for Redis.
func (s *scene) books() (out []report, still bool, err error) {
	out, still = make([]report, len(s.clients)), true
	err = together(len(s.clients), func(i int) (err error) {
		if s.clients[i].killed {
			out[i] = s.clients[i].last
			return nil
		}
		out[i], err = s.clients[i].tell(orderBooks)
		return err
	})
	for i, r := range out {
		if s.clients[i].killed {
			continue
		}
		held := int64(0)
		for _, n := range r.Held {
			held += n
		}
		still = still && r.Flying == 0 && r.Stats.Owed == 0 && held == r.Stats.Held // the others are on their way back
	}
	return out, still, err
}

// leasesBack waits until no client holds a unit, and notes the time that it took.
func (s *scene) leasesBack(e *evidence) error {
	from := s.clock.now()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); s.sleep(restless) {
		out, _, err := s.books()
		if err != nil {
			return err
		}
		e.returned = time.Duration(s.clock.now() - from)
		held := int64(0)
		for i, r := range out {
			if !s.clients[i].killed {
				held += r.Stats.Held
			}
		}
		if held == 0 {
			break
		}
	}
	return nil
}
