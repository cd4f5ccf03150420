package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// span is a call of a process. Times are ns.
type span struct {
	proc       int
	begin, end int64
	fallback   bool
	cutOff     int64 // when the membership of the process ended, while the call ran; 0: it did not
}

// spansOf reads the lines of a process. A call without an end ends at `end`.
func spansOf(proc int, lines []string, end int64) (all []span, err error) {
	open := map[string]int{}
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) < 3 || f[0] == "b" && len(f) < 4 {
			return nil, fmt.Errorf("process %d wrote %q", proc, l)
		}
		at, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return nil, err
		}
		switch f[0] {
		case "b":
			open[f[2]] = len(all)
			all = append(all, span{proc: proc, begin: at, end: end, fallback: f[3] == hybridlimit.SourceFallback.String()})
		case "m":
			for _, i := range open {
				if f[2] == "0" && all[i].cutOff == 0 {
					all[i].cutOff = at
				}
			}
		case "e":
			if i, ok := open[f[2]]; ok {
				all[i].end = at
				delete(open, f[2])
			}
		}
	}
	return all, nil
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

// fullAfter returns the time from `since` until n selected calls run, and false if that never happens.
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

// callsVerdict compares the calls of a run with the promises.
type callsVerdict struct {
	calls, byFallback int
	most              int           // calls at once, without those of the fallback and the outlived ones
	above             int           // by which most may exceed the permits
	mostFallback      int           // calls at once of one process that the fallback admitted
	outlived          int           // calls of a process that was stopped or cut off, whose permits were free for others
	free              time.Duration // until the permits of a killed process run other calls; 0: none was killed
	back              time.Duration // from the end of the fault until each process began a call with a permit of Redis
	cpu               float64
	violations        []violation
}

// promised bounds of a fleet whose heartbeats are one second apart.
const (
	callsFree     = 3 * time.Second  // permits of a killed process
	callsBack     = 10 * time.Second // three heartbeats, and the wait for their answers
	callsOnBusy   = 20 * time.Second // either, on a machine that is busy for more than half of the time
	callsOutlived = 700 * time.Millisecond
)

// checkCalls returns the verdict on the calls of a run.
//
// A stopped process counts as dead when its last heartbeat is 1.8 periods old. The heartbeat is up to one period old at the stop. From
// callsOutlived on, the guarantee excludes its calls, and so the calls that it begins before its ticker has run again.
func checkCalls(p *callsRun, all []span) *callsVerdict {
	v := &callsVerdict{calls: len(all), above: p.row.above, back: p.back, cpu: p.cpu}
	if p.stopped != 0 {
		dead := p.stopped + int64(callsOutlived)
		for i, s := range all {
			if s.proc == 0 && s.end > dead && s.begin < p.resumed+int64(50*time.Millisecond) {
				all[i].end = max(s.begin, dead)
				v.outlived++
			}
		}
	}
	for i, s := range all {
		if shared(s) && s.cutOff != 0 && s.end > s.cutOff {
			all[i].end = s.cutOff
			v.outlived++
		}
	}
	v.most = mostAtOnce(all, shared)
	for _, s := range all {
		if s.fallback {
			v.byFallback++
		}
	}
	for proc := range callsProcs {
		v.mostFallback = max(v.mostFallback, mostAtOnce(all, func(s span) bool { return s.fallback && s.proc == proc }))
	}
	broken := func(kind, format string, args ...any) {
		v.violations = append(v.violations, violation{kind, fmt.Sprintf(format, args...)})
	}
	free, back := callsFree, callsBack
	if p.cpu > 0.5 {
		free, back = callsOnBusy, callsOnBusy
	}
	if v.most > callsPermits+v.above {
		broken("above", "%d calls at once with %d permits, and %d above them are allowed", v.most, callsPermits, v.above)
	}
	counted := callsProcs
	if p.killed != 0 || p.stopped != 0 {
		counted-- // the others count without a process that is silent, and so does one that wakes up
	}
	if share := callsPermits / counted; v.mostFallback > share {
		broken("fallback", "the fallback of a process admitted %d calls at once, its share is %d", v.mostFallback, share)
	}
	if p.killed != 0 {
		took, ok := fullAfter(all, func(s span) bool { return shared(s) && s.proc != 0 }, callsPermits, p.killed)
		if v.free = took; !ok || took > free {
			broken("free", "the permits of a killed process run other calls after %v (ever: %v), the bound is %v", took, ok, free)
		}
	}
	if v.back > back {
		broken("back", "a process began no call with a permit of Redis until %v after the end of the fault, the bound is %v", v.back, back)
	}
	if p.fewer != [2]int64{} {
		within := func(s span) bool { return shared(s) && s.end > p.fewer[0] && s.begin < p.fewer[1] }
		if n := mostAtOnce(all, within); n > callsFewer {
			broken("fewer", "%d calls at once while the limit was %d", n, callsFewer)
		}
	}
	if v.most < callsPermits || v.calls < 100 {
		broken("empty", "%d calls, %d at once: too few to show anything", v.calls, v.most)
	}
	return v
}
