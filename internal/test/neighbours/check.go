package neighbours

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Report is what a process tells of its neighbours.
type Report struct {
	Books    []Books
	Leased   LeasedBooks
	Refused  uint64    // ops that Redis will never apply
	Violated []string  // errors of calls
	Began    time.Time // the window of the limits
}

// Report returns the state of the neighbours. It may be called after the end of the hub.
func (s *Set) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Report{Refused: s.hub.Stats().Refused, Violated: s.violated, Began: s.began}
	for _, l := range s.limiters {
		b := l.books
		for _, v := range l.views {
			AddStats(&b.Stats, v.Stats())
		}
		r.Books = append(r.Books, b)
	}
	r.Leased = s.leased.books
	r.Leased.Stats = s.leased.limiter.Stats()
	return r
}

// AddStats adds the units of a limiter, or of one of its classes, to a sum.
func AddStats(sum *hybrid.Stats, s hybrid.Stats) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(s)
	for _, name := range strings.Fields("Admitted Paid Granted Held Owed Netted Expired Lost Dropped Uncertain Forgiven " +
		"Returned Refunded Resynced") {
		to.FieldByName(name).SetInt(to.FieldByName(name).Int() + from.FieldByName(name).Int())
	}
}

// World is what a world does to its processes.
type World struct {
	Crashes int  // processes that ended without a shutdown; each may have admitted its credit, and never told it
	Losses  int  // times that Redis lost states
	Drops   bool // a process may end, or a window, before Redis has heard of its units
}

// Check compares the reports of all processes of a fleet with the promises, and returns those that are broken.
func Check(w World, fleet []Report) (broken []string) {
	found := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for p, r := range fleet {
		for _, v := range r.Violated {
			found("process %d: %s", p, v)
		}
		if r.Refused > 0 {
			found("process %d: Redis refused %d ops", p, r.Refused)
		}
		if r.Began.Truncate(period) != time.Now().Truncate(period) {
			return broken // a window has ended, and its units are there again
		}
	}
	if len(fleet) == 0 {
		return broken
	}
	w.checkLeased(fleet, found)
	for i, b := range fleet[0].Books {
		var shared, alone, shares, unsure int64
		for p, r := range fleet {
			b := r.Books[i]
			shared, alone, shares, unsure = shared+b.Granted-b.Fallback, alone+b.Fallback, shares+b.Share, unsure+b.Unsure
			s := b.Stats
			if got, want := s.Paid+s.Granted-s.Refunded, s.Admitted+s.Expired+s.Held+s.Lost-s.Owed-s.Dropped-s.Forgiven; got != want {
				found("%s, process %d: the books differ by %d: %+v", b.Name, p, got-want, s)
			}
			if s.Dropped > b.Unpaid && !w.Drops {
				found("%s, process %d: %d units were dropped", b.Name, p, s.Dropped)
			}
		}
		if most := w.bound(b.Mode, int64(len(fleet))) + unsure; shared > most {
			found("%s admitted %d units with Redis, want at most %d", b.Name, shared, most)
		}
		if alone > shares {
			found("%s admitted %d units without Redis, want at most %d", b.Name, alone, shares)
		}
	}
	return broken
}

// bound returns the units that a fleet may admit with Redis: those of the limit, and the credit of the mode. A process
// that is told of no other one has all the credit.
func (w World) bound(mode hybrid.Mode, processes int64) int64 {
	credit := map[hybrid.Mode]int64{hybrid.ModeAuto: Units / 20, hybrid.ModeDeferred: Units}[mode]
	if mode == hybrid.ModeDeferred {
		credit *= max(processes-1, 1)
	}
	return Units + credit*int64(1+w.Crashes) + int64(w.Losses)*Units
}
