package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// This file takes the books at quiet moments. A moment is quiet if no call is made and every sync has been answered.
// Leases may be in hand.

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

// account is the books of one key: units debited by Redis, granted to callers, and in hand.
type account struct{ debited, admitted, held int64 }

// gap returns the units that are debited and neither admitted nor held.
func (a account) gap() int64 { return a.debited - a.admitted - a.held }

// The quiet moments of a run, in order.
const (
	quietBefore = "before the fault"
	quietBack   = "after the recovery"
	quietAfter  = "after a calm second"
	quietAtRest = "after the return of the leases"
	calm        = time.Second            // of load without a fault
	restless    = 20 * time.Millisecond  // interval of polls
	beforeFault = 700 * time.Millisecond // of load between the first quiet moment and the fault
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
		if quiet || time.Since(begin) > settles.on(cpu.busy(readCPU())) {
			e.moments = append(e.moments, m)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// takeBooks fills in the moment. It reports whether the moment was quiet while it did.
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
	add := func(key string, debited, admitted, held int64) {
		a := m.keys[key]
		m.keys[key] = account{a.debited + debited, a.admitted + admitted, a.held + held}
	}
	for key, units := range l.byKey() {
		add(key, units, 0, 0)
	}
	for i, c := range s.clients {
		history, err := readHistory(c.history)
		if err != nil {
			return false, err
		}
		st := standing{stats: was[i].Stats, hub: was[i].Hub, killed: c.killed != 0}
		for _, r := range history {
			if r.kind != recordDecision || !r.allowed {
				continue
			}
			st.admitted += int64(r.units)
			if r.source == hybridlimit.SourceFallback {
				st.alone += int64(r.units)
			}
			add(s.plan.load.Streams[r.stream].key(int(r.key)), 0, int64(r.units), 0)
		}
		m.books = append(m.books, st)
		for key, held := range was[i].Held {
			add(key, 0, 0, held)
		}
	}
	now, stillNow, err := s.books()
	if err != nil {
		return false, err
	}
	quiet = still && stillNow
	for i := range now {
		a, b := &was[i], &now[i]
		quiet = quiet && a.Syncs == b.Syncs && a.Stats.Held == b.Stats.Held && a.Stats.Expired == b.Stats.Expired
	}
	return quiet, nil
}

// books asks every client for its books. Those of a killed client are its last ones, without units in hand by key.
// still reports whether no live client owes units or waits for Redis.
func (s *scene) books() (out []report, still bool, err error) {
	still, err = s.all(orderBooks, func(r report) bool {
		held := int64(0)
		for _, n := range r.Held {
			held += n
		}
		return r.Flying == 0 && r.Stats.Owed == 0 && held == r.Stats.Held // the others are on their way back
	})
	for _, c := range s.clients {
		out = append(out, c.last)
	}
	return out, still, err
}

// leasesBack waits until no client holds a unit, and notes the time that it took.
func (s *scene) leasesBack(e *evidence) error {
	if s.plan.load.days() { // units of a day that no other process wants stay
		return nil
	}
	from := s.clock.now()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); s.sleep(restless) {
		back, err := s.all(orderBooks, func(r report) bool { return r.Stats.Held == 0 })
		if e.returned = time.Duration(s.clock.now() - from); err != nil || back {
			return err
		}
	}
	return nil
}

// cpuTimes is the working time and the total time of the machine's processors.
type cpuTimes struct{ work, all float64 }

// readCPU reads the times on Linux. On other systems they are zero.
func readCPU() (t cpuTimes) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 { // guests are counted under user
			continue
		}
		t.all += n
		if i != 4 && i != 5 { // idle, waiting for a disk
			t.work += n
		}
	}
	return t
}

// busy returns the share of the time since t that the processors worked, from 0 to 1.
func (t cpuTimes) busy(now cpuTimes) float64 {
	if now.all <= t.all {
		return 0
	}
	return (now.work - t.work) / (now.all - t.all)
}
