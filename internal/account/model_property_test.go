package account

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

func planOf(seed uint64, f family, mode Mode, h hazard) *modelPlan {
	return drawPlan(rand.New(rand.NewPCG(seed, uint64(mode))), f, mode, h)
}

// outcome is the result of a run, in units.
type outcome struct {
	bad     string
	excess  float64 // over Burst + rate·t; windows: see worst
	debt    float64 // fixed window: over Rate for each window, of any windows in a row
	bound   int64
	receipt float64 // excess if waiting calls count when they are told
	gained  float64 // units from losses and clock steps, allowed on top of the bound

	losses       int
	under, over  float64 // compared with a Redis that lost nothing
	extra, twice int64   // the permitted amount of each
	wasted       int64   // debited while no process heard of it
	unpaid       int64   // admitted and never debited: 0
	promised     int64   // with members: C of a single process
	late         int64   // dropped because it arrived more than a window late
	idle         bool    // a batch that had taken nothing took units when it arrived again
}

// run plays a plan and checks the theorem and the accounts.
func (pl *modelPlan) run(m mutant, trace *strings.Builder) outcome {
	w := pl.world(m)
	w.trace = trace
	return pl.runIn(w)
}

func (pl *modelPlan) runIn(w *world) outcome {
	for _, e := range pl.events {
		w.play(e)
	}
	if !w.quiesce() {
		w.fail("somebody waits or owes for ever")
	}
	var o outcome
	o.unpaid, o.wasted = w.checkAccounts(), w.redis.wasted()
	switch windowed := w.t.windowed(); {
	case pl.hazard&(hazClock|hazLimit) != 0:
	case !windowed:
		w.checkRestored(&o)
	case pl.hazard&(hazLoss|hazFailover) == 0:
		w.checkCounted(&o)
	}
	if pl.hazard&^(hazClock|hazClass) == 0 && w.redis.expiries == 0 && !w.redis.disowned {
		w.checkOnce(&o)
	}
	bound := int64(pl.procs-1) * pl.credit
	if w.members != nil {
		bound = w.members.bound
		o.promised = w.members.credit(1)
	}
	o.bound, o.gained = bound, excessUnits(w.t.Bucket, w.losses.gained*1000)
	switch b := w.t.Bucket; {
	case w.t.windowed():
		o.late = w.late
		o.excess, o.debt = w.worst()
		if !pl.outage {
			w.checkWindows(&o)
		}
	case b.Queue:
		if !pl.outage {
			w.checkQueue(&o, w.untold*b.Unit+w.losses.gained)
		}
	default:
		worst := w.spending.excess(b)
		o.excess, o.receipt = excessUnits(b, worst), excessUnits(b, w.receipt.excess(b))
		if !pl.outage {
			w.checkBound(worst, bound, int64(max(pl.maxWait, 0)))
		}
	}
	o.bad = w.bad
	return o
}

// checkBound compares the excess with the theorem. Redis forgets units that a process owed when it crashed, or that Redis
// refused. As many may be admitted in addition, once (see giveUp). Redis counts whole µs, so an interval of its clock may be
// one µs shorter.
func (w *world) checkBound(worst, bound, maxWait int64) {
	b := w.t.Bucket
	allowed := (bound+w.untold)*b.Unit*1000 + (b.Refill+w.losses.gained)*1000
	if worst > allowed {
		w.fail("excess %.3f, allowed %.3f", excessUnits(b, worst), excessUnits(b, allowed))
	}
	// A call is told at most MaxWait after Redis has granted it.
	told := w.receipt.excess(b)
	if float64(told) > float64(allowed)+float64(b.Refill)*float64(maxWait) {
		w.fail("excess %.3f when told, allowed %.3f and %d ns of refill", excessUnits(b, told), excessUnits(b, allowed), maxWait)
	}
}

// checkAccounts compares the units that Redis debited with their use. It must be called while no process owes units.
func (w *world) checkAccounts() (unpaid int64) {
	var held, owed int64
	for _, p := range w.procs {
		if p.away {
			continue
		}
		w.begin(p)
		held += p.s.Leased()
		owed += p.s.owed() + p.s.local.admitted
	}
	want := w.spending.total + w.expired + held + w.lost - owed - w.dropped - w.late - w.forgiven + w.redis.wasted()
	debited := w.redis.debited - w.redis.taken
	if debited != want {
		w.fail("Redis has debited %d: admitted %d, expired %d, held %d, lost %d, owed %d, dropped %d, late %d, forgiven %d, wasted %d",
			debited, w.spending.total, w.expired, held, w.lost, owed, w.dropped, w.late, w.forgiven, w.redis.wasted())
	}
	return want - debited
}

// shrink removes all events and waits that are not needed for the failure.
func (pl *modelPlan) shrink(fails func(*modelPlan) bool) *modelPlan {
	best := *pl
	for again := true; again; {
		again = false
		for i := 0; i < len(best.events); i++ {
			less := best
			less.events = slices.Delete(slices.Clone(best.events), i, i+1)
			if fails(&less) {
				best, again = less, true
				i--
				continue
			}
			for _, wait := range []time.Duration{0, best.events[i].wait.Truncate(time.Millisecond)} {
				less.events = slices.Clone(best.events)
				if less.events[i].wait != wait {
					less.events[i].wait = wait
					if fails(&less) {
						best, again = less, true
						break
					}
				}
			}
		}
	}
	return &best
}

// report returns the smallest failing plan and the trace of its run.
func (pl *modelPlan) report(m mutant) string {
	small := pl.shrink(func(p *modelPlan) bool { return p.run(m, nil).bad != "" })
	var trace strings.Builder
	small.run(m, &trace)
	return fmt.Sprintf("%v%s", small, trace.String())
}

// TestSchedulesThatFailed runs schedules in which TestModel found a defect of the rules, or of the model's account.
func TestSchedulesThatFailed(t *testing.T) {
	for _, tc := range []struct {
		seed   uint64
		family family
		hazard hazard
		mode   Mode
	}{
		// The return of a lease of the next window outlived the lease.
		{172197605956057, windows, hazCrash, ModeStrict},
		{48379104757023, windows, hazClass | hazCrash | hazRefusal, ModeAuto},
		// The answer that showed a gap was given up: the gap had voided a return all the same.
		{2070617, windows, hazClass | hazCrash | hazRefusal, ModeAuto},
		// A lone ask does not tell a view whose bucket is full by now.
		{206990854988941, buckets, hazLoss, ModeStrict},
		{206990854989076, buckets, hazLoss, ModeDeferred},
		{172197605956199, buckets, hazClass | hazLoss, ModeStrict},
		{155056348180405, buckets, hazLoss, ModeAuto},
		// After a loss, a return makes a state look rolled back.
		{191457144199192, buckets, hazLoss, ModeAuto},
		// An answer takes longer than the window.
		{202709759259366, windows, hazLoss | hazPrompt, ModeAuto},
		{54474489434072, windows, hazLoss | hazPrompt, ModeStrict},
		{224208560400269, windows, hazLoss | hazPrompt, ModeAuto},
		{250960053284651, windows, hazLoss | hazPrompt, ModeStrict},
		{223107201750580, windows, hazLoss | hazPrompt, ModeStrict},
		// A lease of the next month had the length of the month after it, because its answer came after the border.
		{15460, calendars, 0, ModeStrict},
		{34819, calendars, hazClock, ModeStrict},
		// A closed op counted owed units in a window that was over.
		{63, calendars, hazRefusal, ModeDeferred},
		{77, calendars, 0, ModeDeferred},
		// The answer to a closed op was told as a view of the next window.
		{149, calendars, hazClass | hazCrash | hazRefusal, ModeDeferred},
		// A window in which no op wrote the state lost what it had carried.
		{113, calendars, hazCrash, ModeAuto},
	} {
		pl := planOf(tc.seed, tc.family, tc.mode, tc.hazard)
		if o := pl.run(mutNone, nil); o.bad != "" {
			t.Errorf("seed %d: %s\n%s", tc.seed, o.bad, pl.report(mutNone))
		}
	}
}

// TestModel runs random schedules. Schedules with crashes also have batches that Redis refuses for good. A quarter of them have
// outages with fallback. For these only the accounts are checked.
func TestModel(t *testing.T) {
	seed := testenv.Seed(t)
	for _, tc := range []struct {
		name   string
		hazard hazard
	}{
		{"network", 0},
		{"crashes", hazCrash},
		{"batches given up", hazRefusal},
		{"losses", hazLoss},
		{"losses made good at once", hazLoss | hazPrompt},
		{"clock", hazClock},
		{"members", hazMembers},
		{"failover", hazFailover},
		{"limits that change", hazLimit},
		{"limits that change, and batches given up", hazLimit | hazRefusal},
		{"classes", hazClass},
		{"classes, crashes and batches given up", hazClass | hazCrash | hazRefusal},
		{"classes and losses", hazClass | hazLoss},
		{"classes and members", hazClass | hazMembers},
		{"classes and clock", hazClass | hazClock},
		{"classes and failover", hazClass | hazFailover},
		{"classes and limits that change", hazClass | hazLimit},
		{"long leases", hazLong},
		{"long leases, crashes and batches given up", hazLong | hazCrash | hazRefusal},
		{"long leases and losses", hazLong | hazLoss},
		{"long leases and clock", hazLong | hazClock},
		{"long leases, classes and limits that change", hazLong | hazClass | hazLimit},
		{"long leases and members", hazLong | hazMembers},
		{"long leases and failover", hazLong | hazFailover},
	} {
		for _, f := range []family{buckets, windows, queues, calendars} {
			if f != buckets && tc.hazard&hazLong != 0 {
				continue
			}
			if f == calendars && tc.hazard&hazMembers != 0 { // a day has too many heartbeats
				continue
			}
			for _, mode := range []Mode{ModeAuto, ModeStrict, ModeDeferred} {
				t.Run(fmt.Sprintf("%v/%s/%v", f, tc.name, mode), func(t *testing.T) {
					t.Parallel()
					var sum modelTally
					runs := testenv.Runs(500, 100_000)
					for i := range runs {
						pl := planOf(seed+uint64(i), f, mode, tc.hazard)
						o := pl.run(mutNone, nil)
						if o.bad != "" {
							t.Fatalf("HYBRIDLIMIT_SEED=%d: %s\n%s", seed+uint64(i), o.bad, pl.report(mutNone))
						}
						sum.add(pl, o)
					}
					t.Logf("%d schedules: %v", runs, &sum)
				})
			}
		}
	}
}
