package algo_test

import (
	"math"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// TestFreeLife has the longest life of a free lease by the time in which a bucket fills up, and by the wish of a sender.
func TestFreeLife(t *testing.T) {
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
