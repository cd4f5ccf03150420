package fleet

import (
	"container/heap"
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

	planned uint64
	entries entries
}

// At plans f for a time (ns). A time that is over stands for Now. Functions of one time run in the order in which they
// were planned.
func (a *Agenda) At(t int64, f func()) {
	a.planned++
	heap.Push(&a.entries, entry{max(t, a.Now), a.planned, f})
}

// After plans f for the time d (ns) after Now.
func (a *Agenda) After(d int64, f func()) { a.At(a.Now+d, f) }

// Run runs all functions up to a time (ns), also those that are planned meanwhile. Then it is that time.
func (a *Agenda) Run(until int64) {
	for len(a.entries) > 0 && a.entries[0].t <= until {
		e := heap.Pop(&a.entries).(entry)
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
	n uint64 // in the order of planning
	f func()
}

type entries []entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].t < e[j].t || e[i].t == e[j].t && e[i].n < e[j].n }
func (e entries) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *entries) Push(x any) { *e = append(*e, x.(entry)) }

// Pop implements heap.Interface.
func (e *entries) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1].f = nil // so that it can be collected
	*e = old[:len(old)-1]
	return last
}
