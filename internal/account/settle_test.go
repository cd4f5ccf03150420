package account

import (
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// The op left at 1 s and is answered. A lease of 500 ms ends at 1.49 s.
func TestSettle(t *testing.T) {
	const early, late = sec + 100*ms, sec + 490*ms
	for _, tc := range []struct {
		name    string
		before  Account
		granted int64
		lease   int64
		waiting []int64
		carried int
		now     int64

		served  []bool
		lost    int64
		pending int64
		leases  [2]lease
	}{
		{name: "a lease is kept, to two ticks before its end", lease: 5, now: early, leases: [2]lease{{units: 5, end: late}}},
		{name: "not a ns longer", lease: 5, now: late, lost: 5},
		{name: "it nets credit first", before: Account{pending: 2}, lease: 5, now: early, leases: [2]lease{{units: 3, end: late}}},
		{name: "and may be used up by it", before: Account{pending: 7}, lease: 5, now: early, pending: 2},
		{name: "expired it nets nothing", before: Account{pending: 2}, lease: 5, now: late, lost: 5, pending: 2},
		{
			name: "callers are served in order, as they fit", granted: 5, waiting: []int64{4, 3, 1}, carried: 3, now: early,
			served: []bool{true, false, true},
		},
		{
			name: "those who joined get what is over", granted: 3, lease: 4, waiting: []int64{3, 2}, carried: 1, now: early,
			served: []bool{true, true}, leases: [2]lease{{units: 2, end: late}},
		},
		{
			name: "late, they who asked are served all the same", granted: 3, lease: 4, waiting: []int64{3, 2}, carried: 1, now: late,
			served: []bool{true, false}, lost: 4,
		},
		{
			name: "and nobody who joined, though who asked has left", granted: 3, waiting: []int64{2}, now: late,
			served: []bool{false}, lost: 3,
		}, // Regression: it was served from a bucket that had filled up again.
		{name: "what was asked for those who left is a lease", granted: 3, now: early, leases: [2]lease{{units: 3, end: late}}},
		{name: "or lost", granted: 3, now: late, lost: 3},
		{
			name: "or pays what the fallback admitted meanwhile", before: Account{local: outage{admitted: 2}}, granted: 3, now: early,
			leases: [2]lease{{units: 1, end: late}},
		},
		{
			name: "the second lease is the spare", before: Account{leases: [2]lease{{units: 2, end: 9 * sec}}}, lease: 3, now: early,
			leases: [2]lease{{units: 2, end: 9 * sec}, {units: 3, end: late}},
		},
		{
			name: "a third joins it, to the earlier end", before: Account{leases: [2]lease{{units: 2, end: 9 * sec}, {units: 4, end: 9 * sec}}}, granted: 3, now: early,
			leases: [2]lease{{units: 2, end: 9 * sec}, {units: 7, end: late}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			terms, s := stepTerms(), tc.before
			s.frozen, s.asked, s.inflight, s.stuckAt = true, tc.granted > 0, 1, sec
			a := Answer{
				Answer:   algo.Answer{Granted: tc.granted, Lease: tc.lease, Life: 500_000, Level: 42, Cap: terms.Bucket.Cap, Retry: 3, Born: 7},
				RedisNow: 99, Sent: sec, carried: tc.carried,
			}
			delays, lost := s.settle(terms, a, tc.waiting, tc.now)
			var served []bool
			for _, d := range delays {
				served = append(served, d >= 0)
			}
			if !slices.Equal(served, tc.served) || lost != tc.lost || s.pending != tc.pending || s.leases != tc.leases {
				t.Errorf("served %v, lost %d, pending %d, leases %v", served, lost, s.pending, s.leases)
			}
			if s.inflight != 0 || s.frozen || s.asked || s.stuckAt != 0 {
				t.Errorf("not acknowledged: %+v", s)
			}
			want := view{level: 42, nextPoll: tc.now + 3000, sent: sec, received: tc.now, redisAt: 99, createdAt: 7, relook: tc.now + terms.RelookIn}
			want.cap = terms.Bucket.Cap
			if s.view != want {
				t.Errorf("view %+v", s.view)
			}
		})
	}
}
