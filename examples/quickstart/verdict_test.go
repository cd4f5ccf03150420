package main

import (
	"strings"
	"testing"
	"time"
)

// sample is a run of two processes and 10 s at 100 a second, burst 100: C is 5.
// Redis is dead from 4 s to 6 s. In every cell one of the processes admits one
// unit, which is exactly the rate.
func sample() record {
	r := record{
		config: config{Processes: 2, Rate: 100, Burst: 100, Load: 2, Seconds: 10},
		cells:  make([][]cell, 2), fleet: []int64{2, 2}, credit: 5,
		outage: true, killed: 4 * time.Second, restarted: 6 * time.Second,
	}
	for at := range 1000 {
		c := cell{Began: at, Ended: at, Shared: 1, SharedCalls: 2}
		if at >= 400 && at < 620 { // back 0.2 s after the restart
			c = cell{Began: at, Ended: at, Alone: 1, AloneCalls: 2}
		}
		r.cells[at%2] = append(r.cells[at%2], c)
	}
	return r
}

// burst adds units to the first process's cell.
func (r *record) burst(at int, shared, alone int64) {
	r.cells[0] = append(r.cells[0], cell{Began: at, Ended: at, Shared: shared, Alone: alone})
}

func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(r *record)
		fails  []string // parts of what has failed; none: passes
		notes  string   // part of a note
	}{
		{"the rate and nothing more", func(*record) {}, nil, "a spike at the end"},

		// Before: burst + 1 × C = 105. The sample admits one unit in each
		// cell, so a burst stands out with all of its units.
		{"burst and credit at the start", func(r *record) { r.burst(0, 105, 0) }, nil, ""},
		{
			"one unit too many", func(r *record) { r.burst(0, 106, 0) },
			[]string{"Redis up: 106.0 units above rate × time, allowed 105.0", "both Redis, as one: 106.0"},
			"",
		},
		{
			"one unit too many, in two bursts", func(r *record) { r.burst(100, 53, 0); r.burst(300, 53, 0) },
			[]string{"Redis up: 106.0", "both"},
			"",
		},
		{
			"a lease spent after the kill counts with what came before it",
			func(r *record) { r.burst(390, 100, 0); r.burst(410, 17, 0) },
			[]string{"Redis up: 106.0", "both"},
			"",
		},
		{"credit is larger where a process has seen fewer", func(r *record) { r.fleet[1] = 1; r.burst(0, 105, 0) }, nil, ""},

		// Dead: two shares of 50.
		{"all shares at once", func(r *record) { r.burst(450, 0, 100) }, nil, ""},
		{
			"more than the shares", func(r *record) { r.burst(450, 0, 101) },
			[]string{"Redis dead: 101.0 units above rate × time, allowed 100.0 (2 × burst/2)"},
			"",
		},
		{
			"more than the shares, after the restart", func(r *record) { r.burst(450, 0, 90); r.burst(610, 0, 11) },
			[]string{"Redis dead: 101.0"},
			"",
		},
		{"shares of a fleet that was counted too small", func(r *record) { r.fleet = []int64{1, 1}; r.burst(450, 0, 150) }, nil, ""},

		// After: a burst and C for a fleet of one, 5, for the new Redis.
		{"a full bucket again", func(r *record) { r.burst(700, 105, 0) }, nil, ""},
		{
			"more than a full bucket", func(r *record) { r.burst(700, 106, 0) },
			[]string{"Redis back, empty: 106.0 units above rate × time, allowed 105.0", "both"},
			"",
		},
		{
			"new quota after the wipe", func(r *record) {
				r.config.Burst = 1000
				r.burst(399, 1000, 0)
				r.burst(620, 1000, 0) // 220 had come back
			},
			[]string{"both Redis, as one: 1780.0 units above rate × time, allowed 1050.0"},
			"",
		},
		{"before and after are apart", func(r *record) { r.burst(0, 105, 0); r.burst(450, 0, 100); r.burst(700, 105, 0) }, nil, ""},

		{"alone while Redis was up", func(r *record) { r.burst(100, 0, 7); r.burst(900, 0, 4) }, nil, "at other times: 11"},
		{"a process that stood still", func(r *record) {
			for i := range r.cells[1] {
				r.cells[1][i].AloneCalls = 0
			}
		}, []string{"process 2 did not decide alone"}, ""},
		{"a process that did not come back", func(r *record) {
			for i := range r.cells[0] {
				if r.cells[0][i].Began >= 600 {
					r.cells[0][i].SharedCalls = 0
				}
			}
		}, []string{"process 1 did not come back"}, ""},
		{
			"errors", func(r *record) { r.errors, r.lastError = 1234, "hybrid: no" },
			[]string{"1,234 calls returned an error, the last: hybrid: no"},
			"",
		},
		{"two failures", func(r *record) { r.errors = 1; r.burst(0, 106, 0) }, []string{"Redis up", "both", "error"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := sample()
			tc.change(&r)
			v := judge(r)
			failed := v.failed()
			if len(failed) != len(tc.fails) || v.ok() != (len(tc.fails) == 0) {
				t.Fatalf("failed: %q, want %q", failed, tc.fails)
			}
			for i, want := range tc.fails {
				if !strings.Contains(failed[i], want) {
					t.Errorf("failed: %q, want %q in it", failed[i], want)
				}
			}
			if notes := strings.Join(v.notes, "\n"); !strings.Contains(notes, tc.notes) {
				t.Errorf("notes: %q, want %q in it", notes, tc.notes)
			}
		})
	}
}

func TestVerdictWithoutAnOutage(t *testing.T) {
	r := sample()
	r.config.Redis, r.outage, r.killed, r.restarted = "there:6379", false, 0, 0
	v := judge(r)
	if !v.ok() || len(v.bounds) != 1 || v.bounds[0].allowed != 106 { // its clock: 0.1 % of 1000 units
		t.Errorf("%+v", v)
	}
	r.burst(0, 0, 0)
	r.burst(200, 107, 0)
	if v := judge(r); v.ok() {
		t.Error("107 units above the rate pass")
	}
}

func TestVerdictWithSharesBelowTheFloor(t *testing.T) {
	r := sample()
	r.config.Rate, r.config.Burst = 1, 1 // half a unit each; the floor is one, and one a second
	for p := range r.cells {
		for i := range r.cells[p] {
			r.cells[p][i].Shared, r.cells[p][i].Alone = 0, 0
		}
	}
	r.burst(400, 0, 2)
	r.burst(499, 0, 2)
	if b := judge(r).bounds[1]; !b.ok() || b.measured != 2 || b.allowed != 2 {
		t.Errorf("%+v", b)
	}
	r.burst(498, 0, 1)
	if b := judge(r).bounds[1]; b.ok() {
		t.Errorf("%+v", b)
	}
}
