package member_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/member"
)

// TestQueueing checks that a process that has not heard of Redis waits longer only after its breaker has opened, and that the
// size of the fleet decides from then on.
func TestQueueing(t *testing.T) {
	var q member.Queueing
	want := func(d time.Duration) {
		t.Helper()
		if got := q.Of(1); got != d {
			t.Errorf("%v, want %v", got, d)
		}
	}
	want(0)
	q.Opened()
	want(2 * time.Second)
	few, many := member.NewParty("few", 0, 1), member.NewParty("many", 10_000, 1)
	q.Sized([]*member.Party{few})
	want(2 * time.Second) // not counted
	few.Counted(3, 3, 0, 0)
	q.Sized([]*member.Party{few})
	want(600 * time.Microsecond)
	q.Opened()
	want(600 * time.Microsecond)
	q.Sized([]*member.Party{few, many})
	want(2 * time.Second)
}
