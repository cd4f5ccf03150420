package main

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestRegions is the short form of the rows of regions of make chaos.
func TestRegions(t *testing.T) {
	needRedis(t)
	for _, row := range regionsRows {
		if row.short || testenv.Long() {
			p := row.plan()
			t.Run(p.title(), func(t *testing.T) { play(t, p) })
		}
	}
}

// TestCheckRegions plants each violation.
func TestCheckRegions(t *testing.T) {
	const s = int64(time.Second)
	// sound has 900 units a second in region a, from 10 s to 40 s, and those of the burst at 10 s.
	sound := func(change func(*record)) [][]record {
		histories := make([][]record, regionProcs*len(regionNames))
		add := func(at int64, units int32) {
			r := record{kind: recordDecision, allowed: true, source: hybridlimit.SourceLease, units: units, begin: at}
			if change(&r); r.units > 0 {
				histories[0] = append(histories[0], r)
			}
		}
		add(10*s, 900-9)
		for i := range 30 * int64(100) {
			add(10*s+i*s/100, 9)
		}
		return histories
	}
	as := func(*record) {}
	run := func(change func(*regionsRun)) *regionsRun {
		r := &regionsRun{
			calm: [2]int64{15 * s, 20 * s}, after: [2]int64{30 * s, 35 * s}, moved: 1, burst: 135, credit: [3]int64{2, 3, 4},
		}
		if change != nil {
			change(r)
		}
		return r
	}
	with := func(histories [][]record, more ...record) [][]record {
		histories[5] = append(histories[5], more...)
		return histories
	}
	units := func(n int32, source hybridlimit.Source) record {
		return record{kind: recordDecision, allowed: true, source: source, units: n, begin: 10 * s}
	}
	for _, test := range []struct {
		name      string
		run       *regionsRun
		histories [][]record
		broken    string // kind; empty: none
	}{
		{"sound", run(nil), sound(as), ""},
		{"C of a process of each region", run(nil), with(sound(as), units(18, hybridlimit.SourceCredit)), ""},
		{"a unit above", run(nil), with(sound(as), units(20, hybridlimit.SourceRedis)), brokeBound},
		{"after a lost memory", run(func(r *regionsRun) { r.row.forgets = 1 }), with(sound(as), units(228, hybridlimit.SourceRedis)), ""},
		{"more", run(func(r *regionsRun) { r.row.forgets = 1 }), with(sound(as), units(230, hybridlimit.SourceRedis)), brokeBound},
		{"a fallback", run(nil), with(sound(as), units(137, hybridlimit.SourceFallback)), ""},
		{"a fallback above the burst of its region", run(nil), with(sound(as), units(138, hybridlimit.SourceFallback)), brokeBound},
		{"idle before the fault", run(nil), sound(func(r *record) {
			if r.begin > 15*s && r.begin < 16*s {
				r.units = 0
			}
		}), brokeUse},
		{"idle after the fault", run(nil), sound(func(r *record) {
			if r.begin > 34*s {
				r.units = 0
			}
		}), brokeUse},
		{"a busy machine", run(func(r *regionsRun) { r.cpu = 0.9 }), sound(func(r *record) {
			if r.begin > 34*s+s/10 {
				r.units = 0
			}
		}), ""},
		{"with a process less", run(func(r *regionsRun) { r.row.killed = 1 }), sound(func(r *record) {
			if r.begin > 34*s {
				r.units = 0
			}
		}), ""},
		{"units are lost", run(func(r *regionsRun) { r.lost[0] = 76 }), sound(as), ""},
		{"no more than under way", run(func(r *regionsRun) { r.row.apart, r.lost = true, [3]int64{75, 75, 75} }), sound(as), ""},
		{"more than under way", run(func(r *regionsRun) { r.row.apart, r.lost[1] = true, 76 }), sound(as), brokeAccounting},
		{"an error", run(func(r *regionsRun) { r.failed = "no" }), sound(as), brokeErrors},
		{"not settled", run(func(r *regionsRun) { r.unsettled = "no" }), sound(as), brokeAccounting},
		{"no transfers", run(func(r *regionsRun) { r.moved = 0 }), sound(as), "empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantBroken(t, checkRegions(test.run, test.histories), test.broken)
		})
	}
}

// TestCutOff checks that a region that is cut off keeps its own Redis only.
func TestCutOff(t *testing.T) {
	needRedis(t)
	w, err := startWorld(topologyRegions, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var usual spec
	w.address(&usual)
	for client := range regionProcs * len(regionNames) {
		own := usual
		w.settle(client, &own)
		here := regionOf(client)
		if len(own.Addrs) != 1 || own.Addrs[0] != w.nodes[here].Addr() || len(own.Region.Others) != len(regionNames)-1 || own.Region.Others[regionNames[here]] != "" {
			t.Errorf("client %d: %+v", client, own)
		}
	}
	s := &scene{world: w, plan: regionsRows[1].plan()}
	end, err := regionsCutOff(0)(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	toxics := func() (got [3][3]int) {
		for from, ways := range w.ways {
			for to, p := range ways {
				if p != nil {
					got[from][to] = len(p.Toxics.GetToxicArray())
				}
			}
		}
		return got
	}
	if got, want := toxics(), [3][3]int{{0, 4, 4}, {4, 0, 2}, {4, 2, 0}}; got != want {
		t.Errorf("cut off: toxics %v, want %v", got, want)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got, want := toxics(), [3][3]int{{0, 2, 2}, {2, 0, 2}, {2, 2, 0}}; got != want {
		t.Errorf("connected again: toxics %v, want %v", got, want)
	}
}
