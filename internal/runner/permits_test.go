package runner_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
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

// The largest reply passes the guard of the connection: 64 refusals with 64 holders each.
func TestLargestReplyOfPermits(t *testing.T) {
	withRunner(t, func(t *testing.T, _ *redistest.Bubble, r *runner.Runner) {
		const holders = permits.MaxHolders
		keys, held := make([]string, permits.MaxOps), make([]permits.Op, permits.MaxOps)
		refused := make([]permits.Op, permits.MaxOps)
		for i := range keys {
			keys[i] = names.Held(3, "api", fmt.Sprint(i))
			held[i] = permits.Op{Limit: holders, Keep: 1, Procs: 1}
			refused[i] = permits.Op{Limit: holders, Want: 1, First: 1, Procs: 1}
		}
		for i := range holders {
			m := permits.Message{Process: fmt.Sprintf("%064d", i), Number: 1 << 53, Period: 1_000_000, Ops: held}
			if _, err := r.Permits(t.Context(), names.Holdings(3), keys, m); err != nil {
				t.Fatal(err)
			}
		}
		a, err := r.Permits(t.Context(), names.Holdings(3), keys, permits.Message{Process: "new", Number: 1, Period: 1_000_000, Ops: refused})
		if err != nil {
			t.Fatal(err)
		}
		for i, reply := range a.Replies {
			if len(reply.Holders) != holders {
				t.Errorf("op %d: %d holders, want %d", i, len(reply.Holders), holders)
			}
		}
	})
}
