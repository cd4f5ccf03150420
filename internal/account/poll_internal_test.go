package account

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// A process that is alone and has no credit asks before its next poll if the view covers the call, or if the units of the call
// take T to refill. Regression: it denied calls although the units of its last answer were there.
func TestNextPollOfOneProcess(t *testing.T) {
	for _, tc := range []struct {
		name  string
		units float64 // in the view, at 1 s
		n     int64
		fast  bool // 100 units come back in a second
		alter func(*Account, *Conditions)
		want  Action
		retry int64 // ns
	}{
		{"the view covers the call", 2, 2, false, nil, Ask, 0},
		{"but not what is owed", 2, 2, true, func(a *Account, c *Conditions) { a.pending, c.Interval = 1, 500*ms }, Deny, 40 * ms},
		{"the view and the ledger's units in hand cover it", 1, 2, false, func(a *Account, _ *Conditions) {
			a.leases[0] = lease{units: 1, end: 9 * sec, booked: true}
		}, Ask, 0},
		{"the unit came back since: a fifth of T is over", 0.95, 1, true, nil, Ask, 0},
		{"and it is not over", 0.95, 1, true, func(_ *Account, c *Conditions) { c.Interval = 500 * ms }, Deny, 40 * ms},
		{"as long as others are there, their turn comes first", 2, 2, false, func(_ *Account, c *Conditions) { c.N = 2 }, Deny, 240 * ms},
		{"a unit takes T", 0.95, 1, false, func(_ *Account, c *Conditions) { c.Interval = 100 * ms }, Ask, 0},
		{"two units take T", 1.95, 2, false, func(_ *Account, c *Conditions) { c.Interval = 200 * ms }, Ask, 0},
		{"a unit takes half of T: one ask for each", 0.95, 1, false, func(_ *Account, c *Conditions) { c.Interval = 200 * ms }, Deny, 40 * ms},
	} {
		c := stepTerms()
		c.N, c.Credit, c.Interval, c.Mode = 1, 0, 100*ms, ModeStrict
		if tc.fast { // otherwise 10 a second
			c.Limit = hybridlimit.TokenBucket(100, time.Second, 10)
			c.Bucket = algo.BucketOf(c.Limit)
		}
		a := seen(c, tc.units)
		a.view.nextPoll = sec + 300*ms
		if tc.alter != nil {
			tc.alter(&a, c)
		}
		if v := a.Again(c, tc.n, sec+60*ms); v.Action != tc.want || v.Retry != tc.retry {
			t.Errorf("%s: %+v, want action %v, retry %d", tc.name, v, tc.want, tc.retry)
		}
	}
}

// Before its next poll, a process has only the units in its hand.
func TestBarred(t *testing.T) {
	c := stepTerms()
	a := seen(c, 3)
	a.leases[0] = lease{units: 2, end: 9 * sec}
	a.view.nextPoll = sec + 300*ms
	for _, tc := range []struct{ now, want int64 }{{sec, 3}, {sec + 200*ms, 5}, {sec + 300*ms, 0}} {
		if got := a.Barred(c, tc.now); got != tc.want {
			t.Errorf("at %d ms, %d of %d units are barred, want %d", tc.now/ms, got, a.Remaining(c, tc.now), tc.want)
		}
	}
}

// An op on which a booking waits takes no lease: the booking asks Redis for all its units. Regression: a free lease of one unit
// made a booking wait for one more unit to come back.
func TestABookingTakesNoLease(t *testing.T) {
	for ask, want := range map[int64]bool{0: false, 1: true} {
		c := stepTerms()
		c.N, c.Mode = 1, ModeStrict
		a := seen(c, 10)
		for i := range int64(50) {
			a.demand.note(1, sec+i*10*ms)
		}
		op, ok := a.freeze(c, []int64{ask}, sec+500*ms)
		if !ok || op.Demand > 0 != want {
			t.Errorf("an ask of %d: %+v, want a lease: %v", ask, op, want)
		}
	}
}

// A call that Redis admits although a call for more units was refused changes the units left.
func TestRefusalNotesWhatIsLeft(t *testing.T) {
	var a Account
	a.NoteLeft(7, 9)
	if r := a.Refusal(); r.Left != 7 || r.Reset != 9 || r.Holds(1<<62, 0) {
		t.Errorf("%+v, without a refusal", r)
	}
	a.NoteRefusal(Refusal{N: 5, Until: 3 * sec, Relook: 3 * sec, Left: 4, Reset: 4 * sec}, sec)
	a.NoteLeft(1, 5*sec)
	if r := a.Refusal(); r.Left != 1 || r.Reset != 5*sec || !r.Holds(5, 2*sec) {
		t.Errorf("%+v", r)
	}
}
