package testenv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

type recorder struct{ said, failed []string }

func (r *recorder) Helper()                    {}
func (r *recorder) Logf(f string, args ...any) { r.said = append(r.said, fmt.Sprintf(f, args...)) }
func (r *recorder) Fatalf(f string, a ...any)  { r.failed = append(r.failed, fmt.Sprintf(f, a...)) }

// What is logged is what has to be given to see a run again.
func TestSeed(t *testing.T) {
	t.Setenv("HYBRIDLIMIT_SEED", "")
	var r recorder
	drawn, other := testenv.Seed(&r), testenv.Seed(&r)
	if drawn == other {
		t.Errorf("%d twice", drawn)
	}
	name, value, _ := strings.Cut(r.said[0], "=")
	t.Setenv(name, value)
	if again := testenv.Seed(&r); again != drawn || len(r.failed) > 0 {
		t.Errorf("%d with %s, want %d; %q", again, r.said[0], drawn, r.failed)
	}
	if a, b := testenv.Rand(&r).Uint64(), testenv.Rand(&r).Uint64(); a != b {
		t.Errorf("%d and %d of one seed", a, b)
	}
	t.Setenv(name, "-1")
	if testenv.Seed(&r); len(r.failed) != 1 || !strings.Contains(r.failed[0], name) {
		t.Errorf("%q", r.failed)
	}
}

func TestRuns(t *testing.T) {
	for value, want := range map[string]int{"": 2, "1": 9} {
		t.Setenv("HYBRIDLIMIT_LONG", value)
		if got := testenv.Runs(2, 9); got != want || testenv.Long() != (value != "") {
			t.Errorf("HYBRIDLIMIT_LONG=%q: %d runs", value, got)
		}
	}
}
