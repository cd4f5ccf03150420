package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// callsRun has what the runner knows of a run with calls in flight. Times are ns on the shared clock.
type callsRun struct {
	above   int           // as in plan
	killed  int64         // when process 0 was killed
	stopped int64         // when process 0 was stopped
	resumed int64         // when it ran again
	fewer   [2]int64      // from when to when the lower limit held everywhere
	back    time.Duration // from the end of the fault until each process began a call with a permit of Redis
	cpu     float64       // load of the machine, 0 to 1
}

// span is a call of a process. Times are ns.
type span struct {
	proc       int
	begin, end int64
	fallback   bool
	cutOff     int64 // when the membership of the process ended, while the call ran; 0: it did not
}

// spansOf returns the calls of a process. A call without an end ends at end.
func spansOf(proc int, history []record, end int64) (all []span) {
	open := map[uint16]int{} // by goroutine
	for _, r := range history {
		switch r.kind {
		case recordBegin:
			open[r.key] = len(all)
			all = append(all, span{proc, r.begin, end, r.source == hybridlimit.SourceFallback, 0})
		case recordMember:
			for _, i := range open {
				if !r.allowed && all[i].cutOff == 0 {
					all[i].cutOff = r.begin
				}
			}
		case recordEnd:
			if i, ok := open[r.key]; ok {
				all[i].end = r.begin
				delete(open, r.key)
			}
		}
	}
	return all
}

// shared selects the calls that Redis knows of.
func shared(s span) bool { return !s.fallback }

// edge is a moment at which one call more runs, or one fewer.
type edge struct {
	at int64 // ns
	by int
}

// edges returns the begins and ends of the selected calls in order, ends first.
func edges(all []span, is func(span) bool) (out []edge) {
	for _, s := range all {
		if is(s) && s.end > s.begin {
			out = append(out, edge{s.begin, 1}, edge{s.end, -1})
		}
	}
	slices.SortFunc(out, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	return out
}

// mostAtOnce returns the largest number of selected calls that run at one moment.
func mostAtOnce(all []span, is func(span) bool) (most int) {
	now := 0
	for _, e := range edges(all, is) {
		now += e.by
		most = max(most, now)
	}
	return most
}

// fullAfter returns the time from since until n selected calls run, and false if that never happens.
func fullAfter(all []span, is func(span) bool, n int, since int64) (time.Duration, bool) {
	now := 0
	for _, e := range edges(all, is) {
		now += e.by
		if e.at >= since && now >= n {
			return time.Duration(e.at - since), true
		}
	}
	return 0, false
}

// The promised bounds of a fleet whose heartbeats are one second apart.
var (
	callsFree = within{3 * time.Second, 20 * time.Second}  // until the permits of a killed process run other calls
	callsBack = within{10 * time.Second, 20 * time.Second} // three heartbeats, and the wait for their answers
)

const (
	callsShare    = callsPermits / callsProcs
	callsOutlived = 700 * time.Millisecond
)

// checkCalls returns the verdict on the calls of a run.
//
// A stopped process counts as dead when its last heartbeat is 1.8 periods old. The heartbeat is up to one period old at
// the stop. From callsOutlived on, the guarantee excludes its calls, and so the calls that it begins before its ticker
// has run again.
func checkCalls(p *callsRun, all []span) *verdict {
	c := &callsFigures{calls: len(all), above: p.above, back: p.back}
	v := &verdict{calls: c, cpu: p.cpu}
	if p.stopped != 0 {
		dead := p.stopped + int64(callsOutlived)
		for i, s := range all {
			if s.proc == 0 && s.end > dead && s.begin < p.resumed+int64(50*time.Millisecond) {
				all[i].end = max(s.begin, dead)
				c.outlived++
			}
		}
	}
	for i, s := range all {
		if shared(s) && s.cutOff != 0 && s.end > s.cutOff {
			all[i].end = s.cutOff
			c.outlived++
		}
		if s.fallback {
			c.byFallback++
		}
	}
	c.most = mostAtOnce(all, shared)
	for proc := range callsProcs {
		ofFallback := mostAtOnce(all, func(s span) bool { return s.fallback && s.proc == proc })
		c.mostFallback = max(c.mostFallback, ofFallback)
	}
	if c.most > callsPermits+c.above {
		v.found("above", "%d calls at once with %d permits, and %d above them are allowed", c.most, callsPermits, c.above)
	}
	counted := callsProcs
	if p.killed != 0 || p.stopped != 0 {
		counted-- // the others count without a process that is silent, and so does one that wakes up
	}
	if share := callsPermits / counted; c.mostFallback > share {
		v.found("fallback", "the fallback of a process admitted %d calls at once, its share is %d", c.mostFallback, share)
	}
	if p.killed != 0 {
		others := func(s span) bool { return shared(s) && s.proc != 0 }
		took, ok := fullAfter(all, others, callsPermits, p.killed)
		if c.free = took; !ok || took > callsFree.on(p.cpu) {
			v.found("free", "the permits of a killed process run other calls after %v (ever: %v), the bound is %v",
				took, ok, callsFree.on(p.cpu))
		}
	}
	if c.back > callsBack.on(p.cpu) {
		v.found("back", "a process began no call with a permit of Redis until %v after the end of the fault, the bound is %v",
			c.back, callsBack.on(p.cpu))
	}
	if p.fewer != [2]int64{} {
		during := func(s span) bool { return shared(s) && s.end > p.fewer[0] && s.begin < p.fewer[1] }
		if n := mostAtOnce(all, during); n > callsFewer {
			v.found("fewer", "%d calls at once while the limit was %d", n, callsFewer)
		}
	}
	if c.most < callsPermits || c.calls < 100 {
		v.found("empty", "%d calls, %d at once: too few to show anything", c.calls, c.most)
	}
	return v
}
