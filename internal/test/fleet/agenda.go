package fleet

import (
	"cmp"
	"slices"
	"testing/synctest"
	"time"
)

// Agenda is the virtual time of a fleet: functions that run at their times, in order. The zero Agenda has none. It is
// not safe for concurrent use.
type Agenda struct {
	// Await waits until a time (ns) comes. nil: no goroutine has a clock, so the time comes at once.
	Await func(until int64)
	// Now is the time (ns): that of the function that runs.
	Now int64

	entries []entry // the latest first
}

// At plans f for a time (ns). A time that is over stands for Now. Functions of one time run in the order in which they
// were planned.
func (a *Agenda) At(t int64, f func()) {
	t = max(t, a.Now)
	i, _ := slices.BinarySearchFunc(a.entries, t, func(e entry, t int64) int { return cmp.Or(cmp.Compare(t, e.t), 1) })
	a.entries = slices.Insert(a.entries, i, entry{t, f})
}

// After plans f for the time d (ns) after Now.
func (a *Agenda) After(d int64, f func()) { a.At(a.Now+d, f) }

// Run runs all functions up to a time (ns), also those that are planned meanwhile. Then it is that time.
func (a *Agenda) Run(until int64) {
	for n := len(a.entries); n > 0 && a.entries[n-1].t <= until; n = len(a.entries) {
		e := a.entries[n-1]
		a.entries = slices.Delete(a.entries, n-1, n)
		a.come(e.t)
		e.f()
	}
	a.come(until)
}

func (a *Agenda) come(t int64) {
	if a.Await != nil {
		a.Await(t)
	}
	a.Now = t
}

// inBubble returns an Await for a bubble, in ns since start. A function then runs when all goroutines wait for the
// clock, so everything else at the same instant has happened before it.
func inBubble(start time.Time) func(int64) {
	return func(until int64) {
		time.Sleep(time.Duration(until) - time.Since(start))
		synctest.Wait()
	}
}

type entry struct {
	t int64
	f func()
}
