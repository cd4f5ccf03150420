package neighbours_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
)

// TestCheck plants a violation of each kind, and a fleet that is at each of its bounds.
func TestCheck(t *testing.T) {
	const units = neighbours.Units
	paid := hybrid.Stats{Admitted: units / 2, Granted: units / 2}
	for _, test := range []struct {
		name string
		mode hybrid.Mode
		of   neighbours.World
		set  func(r *neighbours.Report)
		want string // of one violation; "": none
	}{
		{name: "at the limit"},
		{name: "with its credit", mode: hybrid.ModeAuto, set: func(r *neighbours.Report) { r.Books[0].Granted += units / 20 }},
		{"above the limit", hybrid.ModeStrict, neighbours.World{}, func(r *neighbours.Report) { r.Books[0].Granted++ }, "101 units with Redis, want at most 100"},
		{"above its credit", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) { r.Books[0].Granted += units/20 + 1 }, "106 units with Redis, want at most 105"},
		{"a crash", hybrid.ModeAuto, neighbours.World{Crashes: 1}, func(r *neighbours.Report) { r.Books[0].Granted += units / 10 }, ""},
		{"a loss", hybrid.ModeExact, neighbours.World{Losses: 1}, func(r *neighbours.Report) { r.Books[0].Granted += units }, ""},
		{"a share", hybrid.ModeStrict, neighbours.World{}, func(r *neighbours.Report) {
			b := &r.Books[0]
			b.Granted, b.Fallback, b.Share = b.Granted+50, 50, 50
		}, ""},
		{"above the share", hybrid.ModeStrict, neighbours.World{}, func(r *neighbours.Report) {
			b := &r.Books[0]
			b.Granted, b.Fallback, b.Share = b.Granted+51, 51, 50
		}, "51 units without Redis, want at most 50"},
		{"a refused op", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) { r.Refused = 2 }, "Redis refused 2 ops"},
		{"an error", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) { r.Violated = []string{"an error"} }, "process 1: an error"},
		{"books", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) { r.Books[0].Stats.Paid = 3 }, "the books differ by 3"},
		{"leased above the limit", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) { r.Leased.Granted = units + 1 }, "101 units with Redis"},
		{"leased after a loss", hybrid.ModeAuto, neighbours.World{Losses: 1}, func(r *neighbours.Report) { r.Leased.Granted = 2 * units }, ""},
		{"leased, of the fallback", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) { r.Leased.Granted, r.Leased.Fallback, r.Leased.Stats.Owed = 3, 3, 3 }, "3 units without Redis, want at most 0"},
		{"leased, unpaid", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) { r.Leased.Granted, r.Leased.Fallback, r.Leased.Share = 3, 3, 3 }, "the fallback has admitted 3 units"},
		{"dropped units", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) {
			r.Books[0].Stats.Dropped, r.Books[0].Stats.Admitted = 1, units/2+1
		}, "1 units were dropped"},
		{"a dropped charge", hybrid.ModeAuto, neighbours.World{}, func(r *neighbours.Report) {
			r.Books[0].Unpaid, r.Books[0].Stats.Dropped, r.Books[0].Stats.Admitted = 1, 1, units/2+1
		}, ""},
		{"a window that has ended", hybrid.ModeExact, neighbours.World{}, func(r *neighbours.Report) {
			r.Began, r.Books[0].Granted = time.Now().AddDate(-1, 0, 0), 3*units
		}, ""},
	} {
		var fleet []neighbours.Report
		for range 2 {
			fleet = append(fleet, neighbours.Report{
				Began: time.Now(), Books: []neighbours.Books{{Name: "l", Mode: test.mode, Granted: units / 2, Stats: paid}},
			})
		}
		if test.set != nil {
			test.set(&fleet[1])
		}
		got := neighbours.Check(test.of, fleet)
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
