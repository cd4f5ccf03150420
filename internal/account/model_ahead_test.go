package account

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// This file is the part of the model that belongs to leases of the next window.

// aheadBook counts the leases of the next window.
type aheadBook struct {
	asked int   // ops
	units int64 // leased, and heard of by the process
	spent int64 // of these, spent before the process heard of the window
}

// drawAhead draws a lease of the next window for p: calls and a sync in the last part of the window, which the window may end
// before or after. Then p and q use the next window, or the one after it.
func drawAhead(r *rand.Rand, p, procs int, rate int64, h hazard) (es []modelEvent) {
	q := (p + r.IntN(procs)) % procs
	edge := func(ds ...time.Duration) { es = append(es, atEdge(ds[r.IntN(len(ds))])...) }
	some := func(p int, most int64) {
		es = append(es, calls(p, ones(int(r.Int64N(most+1)))...)...)
	}
	if some(p, 2); r.IntN(2) == 0 {
		es = append(es, does(p, evRound)...)
	}
	edge(-40*time.Millisecond, -40*time.Millisecond, -tick-time.Millisecond, -time.Millisecond)
	some(p, 4)
	if es = append(es, does(p, evFreeze)...); r.IntN(2) == 0 {
		edge(-time.Millisecond, -time.Microsecond, 0)
	}
	es = append(es, does(p, evArrive)...)
	if r.IntN(2) == 0 {
		some(q, rate)
		es = append(es, does(q, evRound)...)
	}
	if r.IntN(3) == 0 {
		edge(edges[:]...)
	}
	es = append(es, does(p, evArrive)...)
	for range 1 + r.IntN(5) {
		switch r.IntN(6) {
		case 0, 1:
			edge(edges[:]...)
		case 2, 3:
			some(p, rate)
		case 4:
			some(q, rate)
			es = append(es, does(q, evRound)...)
		case 5: // if data can be lost, no view may be
			if h&(hazLoss|hazFailover) == 0 {
				es = append(es, does(p, evEvict, evRound)...)
			}
		}
	}
	return es
}

// spendAhead counts n held units that p spends. Before it hears of the current window, all of them are from a lease that it took
// in the last one.
func (w *world) spendAhead(p *proc, n int64) {
	if p.s.ranOut(w.now) {
		w.ahead.spent += n
	}
}

// spoilAhead changes the begin or the end of the lease of the next window that came with an answer.
func (w *world) spoilAhead(p *proc, c *Conditions, ans Answer) {
	switch w.mutant {
	case mutAheadSent:
		p.s.ahead.begin -= w.now - ans.Sent
	case mutAheadLong:
		p.s.ahead.end += w.now - ans.Sent + 2*c.Tick
	}
}

// spoilNext changes the state of a window, or an op on it, for a mutant of the leases of the next window.
func (r *modelRedis) spoilNext(s algo.State, op algo.Op, at int64) (algo.State, algo.Op) {
	win := max(r.limit.Window.Number(at), s.Win)
	switch r.mutant {
	case mutNextForgot:
		if s.Win < win {
			s.Next = 0
		}
	case mutNextBackNow:
		if op.Back > 0 && op.Gen > win {
			op.Gen = win
		}
	case mutNextUnseen:
		if w := r.limit.Window; w.Sliding { // the rest of the view stays
			faded := op.View.Prev * (w.Unit - (op.View.At-win*w.Period)/w.Tick)
			op.View.Level += max(0, op.View.Next*w.Unit-faded)
		}
		op.View.Next = 0
	}
	return s, op
}

// hideNext hides the leases of the next window from the grants of a sliding window. show corrects the state and the answer of
// the op.
func (r *modelRedis) hideNext(s algo.State, op algo.Op, at int64) (hidden algo.State, show func(*algo.State, *algo.Answer)) {
	w := r.limit.Window
	if r.mutant != mutNextBeside || !w.Sliding || op.Ahead || op.Back > 0 || s.Win < w.Number(at) {
		return s, func(*algo.State, *algo.Answer) {}
	}
	next := s.Next
	s.Next = 0
	return s, func(s *algo.State, ans *algo.Answer) {
		s.Next = max(s.Next, next)
		ans.Cap = w.Cap - s.Next*w.Unit
	}
}

// TestModelSpendsAhead shows that the search reaches leases of the next window: in random schedules of each kind of failure, such
// leases are taken, and spent before their process hears of the window.
func TestModelSpendsAhead(t *testing.T) {
	seed := testenv.Seed(t)
	const runs = 1000
	for _, h := range []hazard{0, hazLoss, hazLoss | hazPrompt, hazClock, hazRefusal, hazMembers} {
		for _, mode := range []Mode{ModeAuto, ModeStrict} {
			var asked, leased, used int
			var sum aheadBook
			for i := range uint64(runs) {
				pl := planOf(seed+i, []family{windows, calendars}[i%2], mode, h)
				w := pl.world(mutNone)
				pl.runIn(w)
				asked, leased, used = asked+min(w.ahead.asked, 1), leased+int(min(w.ahead.units, 1)), used+int(min(w.ahead.spent, 1))
				sum.units, sum.spent = sum.units+w.ahead.units, sum.spent+w.ahead.spent
			}
			t.Logf("hazard %#x, mode %d: of %d schedules, %d ask for such a lease, %d get one, %d spend of it: %d of %d units",
				h, mode, runs, asked, leased, used, sum.spent, sum.units)
			if sum.spent == 0 {
				t.Errorf("hazard %#x, mode %d: no unit leased of the next window is spent", h, mode)
			}
		}
	}
}

// nextBegins returns the units of the state with which the next window begins: those leased of it and, of a sliding window, also
// those of this one.
func (r *modelRedis) nextBegins(at int64) int64 {
	if r.state.Born == 0 || r.limit.Window.Period == 0 {
		return 0
	}
	s := r.here(at).Load(r.state, at)
	if r.limit.Window.Sliding {
		return s.Cur + s.Next
	}
	return s.Next
}

// counted returns the granted units of a batch, less the returned ones, that count in its window, and those with which the next
// window begins.
func (a *applied) counted(w algo.Window) (now, later int64) {
	if now = a.granted - a.ahead; a.backAt <= w.Number(a.at) {
		now, later = now-a.back, a.ahead
	} else {
		later = a.ahead - a.back
	}
	if w.Sliding {
		later += now
	}
	return now, later
}

// TestModelWindowsAhead has schedules with leases of the next window in which no process may exceed the limit by more than the
// credit of the others. The search found them.
func TestModelWindowsAhead(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	fixed, sliding := hybridlimit.FixedWindow(10, time.Second), hybridlimit.SlidingWindow(10, time.Second)
	seen := script(calls(0, 1), does(0, evRound)) // p0 has leased the rest of the first window
	for _, tc := range []struct {
		name   string
		limit  hybridlimit.Limit
		procs  int
		mode   Mode
		credit int64
		hazard hazard
		events []modelEvent
	}{
		{
			// The view has all of the last window in it, and no units. As these fade, the process has credit. But the window
			// and the leases of the next one were at the limit from the start.
			name: "no credit comes back beside leases of the next window", limit: sliding, procs: 1, mode: ModeAuto, credit: 1,
			events: script(seen, atEdge(-us, calls(0, ones(5)...), does(0, evFreeze)), atEdge(us, does(0, evArrive, evArrive)),
				atEdge(-ms, calls(0, 1, 1)), atEdge(ms, calls(0, ones(10)...))),
		},
		{
			// The op pays two units, and Redis leases seven beside these. It does not know of the two that follow.
			name: "credit that is spent while a lease of the next window is in flight", limit: sliding, procs: 1, mode: ModeAuto, credit: 4,
			events: script(seen, atEdge(ms, seen), atEdge(-40*ms, calls(0, 1, 1), does(0, evFreeze), calls(0, 1, 1), does(0, evArrive, evArrive)),
				atEdge(ms, calls(0, ones(7)...))),
		},
		{
			// Nothing is used in this window, so the process tells no view.
			name: "a view of an unused window tells its leases after a loss", limit: fixed, procs: 2, mode: ModeStrict, hazard: hazLoss | hazPrompt,
			events: script(atEdge(-tick-ms, seen), atEdge(ms), atEdge(-tick-ms, does(0, evResync), calls(0, 1, 1), does(0, evLeave, evLeave, evRound, evLoseKey)),
				atEdge(ms, calls(1, ones(10)...), does(1, evRound), calls(0, ones(8)...))),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pl := modelPlan{
				limit: tc.limit, procs: tc.procs, mode: tc.mode, credit: tc.credit, every: defaultSyncEvery,
				maxWait: time.Hour, greedy: true, hazard: tc.hazard, events: tc.events,
			}
			var trace strings.Builder
			w := pl.world(mutNone)
			w.trace = &trace
			if o := pl.runIn(w); o.bad != "" || w.ahead.units == 0 {
				t.Errorf("%s; %d units leased of the next window, %d spent\n%s", o.bad, w.ahead.units, w.ahead.spent, trace.String())
			}
		})
	}
}
