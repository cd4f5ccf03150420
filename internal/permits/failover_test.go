package permits_test

import "testing"

// TestGiveBackLostInAFailover plays schedules in which a permit stays booked: a failover without an outage loses the last give-back of
// a process, which then sends nothing, or nothing for 10 s, or gets no answer to its next message. No call above the permits is
// admitted, and one call of that process frees the permit.
func TestGiveBackLostInAFailover(t *testing.T) {
	for _, seed := range []uint64{1002260, 2000505, 2001581} {
		o := schedule(failedOver, "", seed)
		if len(o.kept) != 1 || len(o.bad) > 0 || o.excess > 0 {
			t.Errorf("seed %d: permits that stay booked: %q; other errors: %q; %d calls above the permits", seed, o.kept, o.bad, o.excess)
		}
	}
}
