package algo_test

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// TestLife has the longest life of a lease by the time in which a bucket fills up, and by the wish of a sender.
func TestLife(t *testing.T) {
	queue := hybridlimit.LeakyQueue(1000, time.Second, 60_000)
	for _, tc := range []struct {
		limit  hybridlimit.Limit
		wanted int64
		want   time.Duration
	}{
		{hybridlimit.TokenBucket(1000, time.Second, 1), 0, time.Second},
		{hybridlimit.TokenBucket(1000, time.Second, 4999), 0, time.Second},
		{hybridlimit.TokenBucket(1000, time.Second, 5000), 0, 2 * time.Second},
		{hybridlimit.TokenBucket(1000, time.Second, 9999), 0, 2 * time.Second},
		{hybridlimit.TokenBucket(1000, time.Second, 10_000), 0, 4 * time.Second},
		{hybridlimit.TokenBucket(1, time.Hour, 100), 0, 4 * time.Second},
		{hybridlimit.TokenBucket(1, time.Hour, 100), 1, time.Second},
		{hybridlimit.TokenBucket(1, time.Hour, 100), 2, 2 * time.Second},
		{hybridlimit.TokenBucket(1, time.Hour, 100), 3, 2 * time.Second},
		{hybridlimit.TokenBucket(1, time.Hour, 100), 4, 4 * time.Second},
		{hybridlimit.TokenBucket(1, time.Hour, 100), math.MaxInt64, 4 * time.Second},
		{hybridlimit.TokenBucket(1000, time.Second, 1), 4, time.Second},
		{queue, 0, time.Second},
	} {
		if got := time.Duration(algo.BucketOf(tc.limit).Life(tc.wanted)) * time.Microsecond; got != tc.want {
			t.Errorf("%v, %d wanted: %v, want %v", tc.limit, tc.wanted, got, tc.want)
		}
	}
}

// TestLongGenerations has a lease of a bucket of ten seconds: the ledger holds it for its four seconds at least, and for
// eight at most, as Config.MaxLease of package hybrid says of a process that crashes.
func TestLongGenerations(t *testing.T) {
	b := algo.BucketOf(hybridlimit.TokenBucket(10, time.Second, 100))
	const life, at = algo.MaxLease, start + 3_700_000
	s, ans, _ := b.Apply(algo.State{}, algo.Op{Demand: 100_000, Div: 4}, at)
	if ans.Lease == 0 || ans.Gen == 0 || ans.Life != life {
		t.Fatalf("%+v", ans)
	}
	for after, held := range map[int64]bool{0: true, life: true, 2 * life: false} {
		if out := b.Load(s, at+after).Out; (out[0]+out[1] == ans.Lease) != held {
			t.Errorf("after %d µs the ledger holds %d of %d units", after, out, ans.Lease)
		}
	}
}

// TestFirstPolls has a process that comes from no queue: its poll gets less time than that of one that waited, because
// it expects all processes to follow with the same demand.
func TestFirstPolls(t *testing.T) {
	b := algo.BucketOf(hybridlimit.TokenBucket(1000, time.Second, 10_000))
	empty := func() algo.State {
		s, _, _ := b.Apply(algo.State{}, algo.Op{Owed: 10_000}, start)
		return s
	}
	poll := func(op algo.Op) time.Duration {
		op.Asks, op.Div = []int64{1}, 200 // a hundred processes
		_, ans, _ := b.Apply(empty(), op, start)
		return time.Duration(ans.Retry) * time.Microsecond
	}
	const demand = 100_000                                                                           // load 10
	if got, want := poll(algo.Op{Demand: demand, Queued: true}), 200*time.Millisecond; got != want { // its units of 2 s
		t.Errorf("after a queue, the next poll is in %v, want %v", got, want)
	}
	want := time.Duration(200 / math.Pow(10, 0.625) * 1e6)
	if got := poll(algo.Op{Demand: demand}); got < want-time.Microsecond || got > want {
		t.Errorf("without a queue, the next poll is in %v, want %v", got, want)
	}
	if got, want := poll(algo.Op{Demand: demand / 20}), 10*time.Millisecond; got != want {
		t.Errorf("at half of the load, the next poll is in %v, want %v", got, want)
	}
}
