package testenv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

type recorder struct{ said, failed []string }

func (r *recorder) Helper()                    {}
func (r *recorder) Logf(f string, args ...any) { r.said = append(r.said, fmt.Sprintf(f, args...)) }
func (r *recorder) Fatalf(f string, a ...any)  { r.failed = append(r.failed, fmt.Sprintf(f, a...)) }

// The seed is the same in each run unless the environment sets another. The log
// has the setting that repeats the run.
func TestSeed(t *testing.T) {
	t.Setenv("HYBRIDLIMIT_SEED", "")
	var r recorder
	if one, two := testenv.Seed(&r), testenv.Seed(&r); one != 1 || two != 1 {
		t.Errorf("Seed = %d and %d, want 1 twice", one, two)
	}
	name, value, _ := strings.Cut(r.said[0], "=")
	if name != "HYBRIDLIMIT_SEED" || value != "1" {
		t.Errorf("logged %q", r.said)
	}
	t.Setenv(name, "17")
	if seed := testenv.Seed(&r); seed != 17 || len(r.failed) > 0 {
		t.Errorf("Seed = %d with %s=17; %q", seed, name, r.failed)
	}
	if a, b := testenv.Rand(&r).Uint64(), testenv.Rand(&r).Uint64(); a != b {
		t.Errorf("one seed gave %d and %d", a, b)
	}
	t.Setenv(name, "-1")
	if testenv.Seed(&r); len(r.failed) != 1 || !strings.Contains(r.failed[0], name) {
		t.Errorf("%q", r.failed)
	}
}

func TestRuns(t *testing.T) {
	t.Setenv("HYBRIDLIMIT_FULL", "")
	for value, want := range map[string]int{"": 2, "1": 9} {
		t.Setenv("HYBRIDLIMIT_LONG", value)
		if got := testenv.Runs(2, 9); got != want || testenv.Long() != (value != "") || testenv.Full() != (value != "") {
			t.Errorf("HYBRIDLIMIT_LONG=%q: %d runs", value, got)
		}
	}
	t.Setenv("HYBRIDLIMIT_LONG", "")
	t.Setenv("HYBRIDLIMIT_FULL", "1")
	if !testenv.Full() || testenv.Long() || testenv.Runs(2, 9) != 2 {
		t.Error("HYBRIDLIMIT_FULL must give Full without Long")
	}
}
