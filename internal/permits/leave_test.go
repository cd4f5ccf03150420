package permits_test

import (
	"fmt"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/permits"
)

// TestPartOfAStarvingFleet checks the permits that a process leaves to another one that starves. It keeps its equal
// part of the limit, and no permit more: a permit above the part that a call gives back is not used again, although
// the next call comes at once. Otherwise two processes with two permits would stay as they are for ever: one has both,
// and the other one starves. Up to its part a process goes on as before.
func TestPartOfAStarvingFleet(t *testing.T) {
	for _, test := range []struct {
		limit, procs int64
		booked, runs int64 // permits that the process holds, and calls of one permit that run
		ends         int64 // calls that end, each followed by another call at once
		starving     bool
		want         int64 // calls that run then
	}{
		{2, 2, 2, 2, 1, true, 1},
		{2, 2, 2, 2, 2, true, 1},
		{12, 3, 6, 6, 1, true, 5},
		{12, 3, 6, 6, 2, true, 4},
		{12, 3, 6, 6, 9, true, 4},
		{12, 3, 6, 5, 3, true, 4},
		{12, 3, 6, 4, 3, true, 4},
		{12, 3, 6, 3, 3, true, 3},
		{2, 2, 2, 2, 2, false, 2},
		{12, 3, 6, 6, 9, false, 6},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			c := &permits.Conditions{
				Standing: permits.Standing{Until: 9 * second, Session: 1}, Limit: test.limit, Procs: test.procs, Period: period,
			}
			var h permits.Holding
			h.Wait(&permits.Waiter{N: test.booked})
			h.Settle(c, second)
			op := h.Op(c, second)
			h.Hear(c, op, permits.Reply{Booked: test.booked, Usable: test.booked, Starving: test.starving}, 1, second, 0)
			if h.Next(c, second) == nil {
				t.Fatal("the permits are not at hand")
			}
			for range test.booked - test.runs {
				end(&h, c)
			}
			for range test.ends {
				end(&h, c)
				h.Take(1, 1)
			}
			if got := h.Used(); got != test.want {
				t.Errorf("%d calls run, want %d", got, test.want)
			}
		})
	}
}

// end ends a call of one permit, as the shell does.
func end(h *permits.Holding, c *permits.Conditions) {
	if h.Release(1) {
		h.Next(c, second)
		h.Settle(c, second)
	}
}

// TestRenameTakesRunningCallsAlong checks that a new identity has the permits of running calls, and none to spare: they
// are booked under the old identity, which the next op claims.
func TestRenameTakesRunningCallsAlong(t *testing.T) {
	c := &permits.Conditions{
		Standing: permits.Standing{Until: 9 * second, Session: 1}, Limit: 12, Procs: 3, Period: period,
	}
	var h permits.Holding
	h.Wait(&permits.Waiter{N: 2})
	h.Settle(c, second)
	op := h.Op(c, second)
	h.Hear(c, op, permits.Reply{Booked: 6, Usable: 6}, 1, second, 0)
	if h.Next(c, second) == nil || h.Usable() != 6 || h.Used() != 2 {
		t.Fatalf("%d usable, %d used", h.Usable(), h.Used())
	}
	h.Rename("old")
	if h.Usable() != 2 || h.Used() != 2 || h.Booked() != 0 || h.Take(1, 1) {
		t.Errorf("%d usable, %d used, %d booked: want the 2 of the running call", h.Usable(), h.Used(), h.Booked())
	}
	if !h.Settle(c, 2*second) {
		t.Fatal("nothing is told")
	}
	if op := h.Op(c, 2*second); op.Keep != 2 || len(op.Claims) != 1 || op.Claims[0] != (permits.Claim{Process: "old", Number: 1}) {
		t.Errorf("%+v", op)
	}
}
