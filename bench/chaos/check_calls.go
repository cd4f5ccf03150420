package main

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
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

// callsFigures are those of a run with calls in flight.
type callsFigures struct {
	Calls, ByFallback int
	Most              int // calls at once, without those of the fallback and the outlived ones
	Above             int // by which Most may exceed the permits
	MostFallback      int // calls at once of one process that the fallback admitted
	Outlived          int // calls of a process that was stopped or cut off, whose permits were free for others
	// Free is the time until the permits of a killed process run other calls. 0 means that none was killed.
	Free time.Duration `json:",omitempty"`
	Back time.Duration // from the end of the fault until each process began a call with a permit of Redis
}

// bound returns the permits, and what may come above them.
func (c *callsFigures) bound() string {
	if c.Above > 0 {
		return fmt.Sprintf("%d+%d", callsPermits, c.Above)
	}
	return fmt.Sprint(callsPermits)
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

// running returns each moment, in ns, at which one of the selected calls begins or ends, in order, and the number of
// them that run from then on. At one moment, ends are first.
func running(all []span, is func(span) bool) iter.Seq2[int64, int] {
	var edges [][2]int64 // moment, and 1 or -1
	for _, s := range all {
		if is(s) && s.end > s.begin {
			edges = append(edges, [2]int64{s.begin, 1}, [2]int64{s.end, -1})
		}
	}
	slices.SortFunc(edges, func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	return func(yield func(int64, int) bool) {
		now := 0
		for _, e := range edges {
			if now += int(e[1]); !yield(e[0], now) {
				return
			}
		}
	}
}

// mostAtOnce returns the largest number of selected calls that run at one moment.
func mostAtOnce(all []span, is func(span) bool) (most int) {
	for _, now := range running(all, is) {
		most = max(most, now)
	}
	return most
}

// fullAfter returns the time from since until n selected calls run, and false if that never happens.
func fullAfter(all []span, is func(span) bool, n int, since int64) (time.Duration, bool) {
	for at, now := range running(all, is) {
		if at >= since && now >= n {
			return time.Duration(at - since), true
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
	c := &callsFigures{Calls: len(all), Above: p.above, Back: p.back}
	v := &verdict{CPU: benchkit.Round(p.cpu, 2), callsFigures: c}
	if p.stopped != 0 {
		dead := p.stopped + int64(callsOutlived)
		for i, s := range all {
			if s.proc == 0 && s.end > dead && s.begin < p.resumed+int64(50*time.Millisecond) {
				all[i].end = max(s.begin, dead)
				c.Outlived++
			}
		}
	}
	for i, s := range all {
		if shared(s) && s.cutOff != 0 && s.end > s.cutOff {
			all[i].end = s.cutOff
			c.Outlived++
		}
		if s.fallback {
			c.ByFallback++
		}
	}
	c.Most = mostAtOnce(all, shared)
	for proc := range callsProcs {
		ofFallback := mostAtOnce(all, func(s span) bool { return s.fallback && s.proc == proc })
		c.MostFallback = max(c.MostFallback, ofFallback)
	}
	v.want(c.Most <= callsPermits+c.Above, "above", "%d calls at once with %d permits, and %d above them are allowed",
		c.Most, callsPermits, c.Above)
	counted := callsProcs
	if p.killed != 0 || p.stopped != 0 {
		counted-- // the others count without a process that is silent, and so does one that wakes up
	}
	share := callsPermits / counted
	v.want(c.MostFallback <= share, "fallback", "the fallback of a process admitted %d calls at once, its share is %d",
		c.MostFallback, share)
	if p.killed != 0 {
		others := func(s span) bool { return shared(s) && s.proc != 0 }
		took, ok := fullAfter(all, others, callsPermits, p.killed)
		bound := callsFree.on(p.cpu)
		c.Free = took
		v.want(ok && took <= bound, "free", "the permits of a killed process run other calls after %v (ever: %v), "+
			"the bound is %v", took, ok, bound)
	}
	bound := callsBack.on(p.cpu)
	v.want(c.Back <= bound, "back", "a process began no call with a permit of Redis until %v after the end of the fault, "+
		"the bound is %v", c.Back, bound)
	fewer := mostAtOnce(all, func(s span) bool { return shared(s) && s.end > p.fewer[0] && s.begin < p.fewer[1] })
	v.want(fewer <= callsFewer, "fewer", "%d calls at once while the limit was %d", fewer, callsFewer)
	v.want(c.Most >= callsPermits && c.Calls >= 100, "empty", "%d calls, %d at once: too few to show anything",
		c.Calls, c.Most)
	return v
}
