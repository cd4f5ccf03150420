package account

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// TestMaxLife checks that a process with a shorter MaxLife tells it with an op that may lease, and holds unused grants
// and leases no longer, even if Redis does not know of it.
func TestMaxLife(t *testing.T) {
	for _, most := range []int64{0, 1, 2, 4} {
		c := stepTerms()
		c.MaxLife = most
		s := seen(c, 0)
		s.view.nextPoll, s.demand = s.view.received+5*ms, demand{sum: 20, sq: 20, at: sec}
		s.Begin(0, sec+10*ms)
		op, ok := s.freeze(c, []int64{1}, sec+10*ms)
		if !ok || op.Div == 0 || op.MaxLife != most || !op.Queued {
			t.Errorf("MaxLife %d: op %+v, %t", most, op, ok)
		}
		ans := algo.Answer{Lease: 3, Life: algo.MaxLease, Cap: c.Bucket.Cap, Born: 1}
		s.settle(c, Answer{Answer: ans, RedisNow: 2, Sent: sec}, nil, sec+11*ms)
		want := time.Duration(most) * time.Second
		if most == 0 {
			want = 4 * time.Second
		}
		if got := time.Duration(s.LeaseEnds() - sec + 2*c.Tick); s.Held() != 3 || got != want {
			t.Errorf("MaxLife %d: %d units for %v, want 3 for %v", most, s.Held(), got, want)
		}
	}
}
