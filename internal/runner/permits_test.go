package runner_test

import (
	"errors"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// A message of permits is applied once, and the errors name the cause.
func TestPermits(t *testing.T) {
	withRunner(t, func(t *testing.T, _ *redistest.Bubble, r *runner.Runner) {
		memory, keys := names.Holdings(3), []string{names.Held(3, "api", "k")}
		m := permits.Message{Process: "a", Number: 1, Period: 1_000_000, Ops: []permits.Op{{Limit: 5, Keep: 2, Procs: 1}}}
		a, err := r.Permits(t.Context(), memory, keys, m)
		if err != nil || a.Epoch == 0 || len(a.Replies) != 1 || a.Replies[0].Booked != 2 || a.Replies[0].Free != 3 {
			t.Fatalf("%+v, %v", a, err)
		}
		if a, err := r.Permits(t.Context(), memory, keys, m); !errors.Is(err, permits.ErrStale) {
			t.Errorf("the same message again: %+v, %v", a, err)
		}
		m.Number, m.Ops[0].First = 2, 1 // more than it wants
		if a, err := r.Permits(t.Context(), memory, keys, m); !errors.Is(err, wire.ErrRefused) {
			t.Errorf("a message that the script cannot read: %+v, %v", a, err)
		}
	})
}
