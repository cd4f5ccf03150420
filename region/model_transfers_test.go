package region

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestModelTransfers plays random schedules: in any interval, all regions together admit at most
// Burst + rate·t + Σ N·C, and what the faults allow.
func TestModelTransfers(t *testing.T) {
	seed := testenv.Seed(t)
	runs := 1500
	if testenv.Full() {
		runs = 20_000
	}
	for _, tc := range []struct {
		name   string
		hazard hazard
	}{
		{"calm", 0},
		{"lost messages and partitions", hazNet},
		{"crashes", hazNet | hazCrash},
		{"cut off from their Redis", hazNet | hazCrash | hazApart},
		{"wipes", hazNet | hazCrash | hazApart | hazWipe},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var moved, landed, lost, units int64
			played := 0
			for i := range uint64(runs) {
				pl := draw(seed+i, tc.hazard)
				w := pl.run(mutNone, nil)
				switch {
				case w == nil:
					continue
				case w.bad != "":
					t.Fatalf("HYBRIDLIMIT_SEED=%d: %s\n%s", seed+i, w.bad, pl.report(mutNone))
				}
				played++
				moved, landed, lost, units = moved+w.moved, landed+w.landed, lost+w.lost, units+w.units
			}
			t.Logf("%d schedules: %d units admitted, %d moved, of which Redis heard of %d; %d taken and not given", played, units, moved, landed, lost)
			if played < runs*9/10 || moved*20 < units {
				t.Errorf("%d of %d schedules, and %d units moved of %d: the search reaches too little", played, runs, moved, units)
			}
		})
	}
}

// TestModelTransfersFindMutants shows that the search can fail. For the first mutant, only the promise is checked.
func TestModelTransfersFindMutants(t *testing.T) {
	seed := testenv.Seed(t)
	for _, tc := range []struct {
		mutant  mutant
		hazard  hazard
		promise bool // the promise breaks, not only the bound on the units under way
		common  bool // found in one of some hundred schedules
	}{
		{mutNoEscrow, 0, true, true},
		{mutTwoMovers, 0, false, true},
		{mutNotLanded, 0, false, true},
		{mutOldUnits, hazCrash, false, false},
		{mutLateReply, hazNet, false, false},
		{mutNoReserve, 0, true, false},
		{mutTwoMovers, 0, true, false},
	} {
		t.Run(fmt.Sprintf("%v/%v", tc.mutant, tc.promise), func(t *testing.T) {
			t.Parallel()
			if !tc.common && !testenv.Full() {
				t.Skip("found in too few schedules for a short run; set HYBRIDLIMIT_FULL")
			}
			for i := range uint64(200_000) {
				pl := draw(seed+i, tc.hazard)
				w, ok := pl.world(tc.mutant)
				if !ok {
					continue
				}
				w.promise = tc.promise
				if w.run(pl).bad != "" {
					t.Logf("after %d schedules: %s", i, w.bad)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// TestModelReserve has a schedule that breaks the promise without a reserve, by the sizes of leases of Redis itself. A
// process holds a free lease of two units for most of a second. Meanwhile its bucket fills up, because units come from the
// other region, which refills them.
func TestModelReserve(t *testing.T) {
	pl := &plan{
		limit: hybridlimit.TokenBucket(36, 1356*time.Millisecond, 36), shares: []int64{50, 50}, escrow: 0.1,
		procs: []int{3, 2}, mode: account.ModeAuto, part: 0.05, warm: true, maxWait: time.Second, skew: []int64{0, 0},
		events: []modelEvent{
			{evCall, 1, 2, 1, 0},
			{evRound, 1, 2, 0, 0},
			{evFar, 0, 0, 0, 118000000},
			{evCall, 1, 2, 8, 0},
			{evCall, 1, 2, 8, 0},
			{evCall, 1, 2, 2, 26000000},
			{evRound, 1, 2, 0, 0},
			{evMove, 1, 2, 0, 0},
			{evFar, 0, 0, 0, 104000000},
			{evFar, 0, 0, 0, 47000000},
			{evFar, 0, 0, 0, 24000000},
			{evCall, 1, 0, 5, 41000000},
			{evRound, 1, 0, 0, 0},
			{evTransfer, 1, 0, 0, 0},
			{evCall, 1, 0, 6, 118000000},
			{evTransfer, 1, 0, 1, 0},
			{evCall, 1, 0, 8, 88000000},
			{evRound, 1, 0, 0, 0},
			{evCall, 1, 2, 8, 23000000},
			{evMove, 1, 2, 0, 0},
			{evFar, 0, 0, 0, 84000000},
			{evFar, 0, 0, 0, 62000000},
			{evRound, 1, 0, 0, 93000000},
			{evCall, 1, 2, 13, 40000000},
			{evMove, 1, 2, 0, 0},
			{evCall, 1, 2, 3, 37000000},
			{evFar, 0, 0, 0, 28000000},
			{evFar, 0, 0, 0, 24000000},
			{evFar, 0, 0, 0, 116000000},
			{evFar, 0, 0, 0, 61000000},
			{evFar, 0, 0, 0, 58000000},
			{evFar, 0, 0, 0, 13000000},
		},
	}
	if w := pl.run(mutNone, nil); w == nil || w.bad != "" {
		t.Fatalf("with a reserve: %s", pl.report(mutNone))
	}
	if w := pl.run(mutNoReserve, nil); !strings.HasPrefix(w.bad, "excess") {
		t.Errorf("without a reserve: %q, want an excess", w.bad)
	}
}

// report returns the smallest failing plan and the trace of its run.
func (pl *plan) report(m mutant) string {
	small := pl.shrink(func(p *plan) bool { w := p.run(m, nil); return w != nil && w.bad != "" })
	var trace strings.Builder
	small.run(m, &trace)
	return fmt.Sprintf("%v%s", small, trace.String())
}

// shrink removes all events, waits and numbers that are not needed for the failure.
func (pl *plan) shrink(fails func(*plan) bool) *plan {
	best := *pl
	try := func(i int, alter func(*modelEvent)) bool {
		less := best
		less.events = slices.Clone(best.events)
		if alter(&less.events[i]); less.events[i] == best.events[i] || !fails(&less) {
			return false
		}
		best = less
		return true
	}
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
			again = try(i, func(e *modelEvent) { e.wait = 0 }) || try(i, func(e *modelEvent) { e.wait = e.wait.Truncate(time.Millisecond) }) ||
				try(i, func(e *modelEvent) { e.n = min(e.n, 1) }) || try(i, func(e *modelEvent) { e.n /= 2 }) || again
		}
	}
	return &best
}
