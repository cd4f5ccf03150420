package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// bubble runs f in virtual time for each algorithm, with a limit of n per period.
func bubble(t *testing.T, n int64, per time.Duration, f func(t *testing.T, l *Limiter)) {
	t.Helper()
	eachAlgorithm(t, n, per, func(t *testing.T, limit hybridlimit.Limit) {
		synctest.Test(t, func(t *testing.T) { f(t, must(t, limit, Config{})) })
	})
}

// waited runs Wait and returns its duration.
func waited(ctx context.Context, l *Limiter, n int64) (time.Duration, error) {
	start := time.Now()
	res, err := l.Wait(ctx, "k", n)
	if err == nil && (!res.Allowed || res.Granted != n || res.Delay != 0 || res.RetryAfter != 0) {
		err = fmt.Errorf("unexpected result: %+v", res)
	}
	if err != nil && res != (hybridlimit.Result{}) {
		err = fmt.Errorf("%w, and %+v", err, res)
	}
	return time.Since(start), err
}

// TestWaitTakesAsLongAsItMust checks the duration of each wait. Virtual time begins at
// midnight, on a border of windows.
func TestWaitTakesAsLongAsItMust(t *testing.T) {
	want := map[hybridlimit.Algorithm][]time.Duration{ // at 10 a second, for the costs 10, 5, 10
		hybridlimit.AlgTokenBucket:   {0, 500 * ms, 1000 * ms},
		hybridlimit.AlgLeakyBucket:   {0, 500 * ms, 1000 * ms},
		hybridlimit.AlgLeakyQueue:    {0, 1000 * ms, 500 * ms},
		hybridlimit.AlgFixedWindow:   {0, 1000 * ms, 1000 * ms},
		hybridlimit.AlgSlidingWindow: {0, 1500 * ms, 1500 * ms},
		hybridlimit.AlgSlidingLog:    {0, 1000 * ms, 1000 * ms},
	}
	bubble(t, 10, time.Second, func(t *testing.T, l *Limiter) {
		for i, n := range []int64{10, 5, 10} {
			if took, err := waited(t.Context(), l, n); err != nil || took != want[l.first.Algorithm][i] {
				t.Errorf("Wait for %d took %v, want %v (%v)", n, took, want[l.first.Algorithm][i], err)
			}
		}
	})
}

// TestWaitKeepsTheRate checks that all of many callers get their units, and that no
// interval has more than the algorithm's bound.
func TestWaitKeepsTheRate(t *testing.T) {
	bubble(t, 10, time.Second, func(t *testing.T, l *Limiter) {
		const callers, each = 12, 8
		start := time.Now()
		var mu sync.Mutex
		var times []time.Duration
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range each {
					if _, err := l.Wait(t.Context(), "k", 1); err != nil {
						t.Error(err)
					}
					mu.Lock()
					times = append(times, time.Since(start))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(times)
		if len(times) != callers*each {
			t.Fatalf("%d of %d waits succeeded", len(times), callers*each)
		}
		for i := range times {
			for j := i; j < len(times); j++ {
				d, n := times[j]-times[i], int64(j-i+1)
				most := 10 + int64(d/(100*ms))
				switch l.first.Algorithm {
				case hybridlimit.AlgLeakyQueue:
					most = 1 + int64(d/(100*ms))
				case hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow:
					most = 10 * (2 + int64(d/time.Second))
				case hybridlimit.AlgSlidingLog:
					most = 10 * (1 + int64(d/time.Second))
				}
				if n > most {
					t.Fatalf("%d units within %v, want at most %d", n, d, most)
				}
			}
		}
		if last := times[len(times)-1]; last > 11*time.Second {
			t.Errorf("%d units at 10 a second took %v", len(times), last)
		}
	})
}

// TestQueueSpacesOut checks that the starts of calls through a queue are the service time
// of a unit apart, for any arrivals.
func TestQueueSpacesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, hybridlimit.LeakyQueue(3, time.Second, 100), Config{})
		start := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var starts []time.Duration
		for i := range 30 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%7) * 50 * ms)
				if _, err := l.Wait(t.Context(), "k", 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				starts = append(starts, time.Since(start))
				mu.Unlock()
			})
		}
		wg.Wait()
		slices.Sort(starts)
		for i, at := range starts { // each start is rounded up to whole ns
			if want := time.Duration(i) * time.Second / 3; at < want || at > want+1 {
				t.Errorf("start %d at %v, want %v", i, at, want)
			}
		}
	})
}

func TestWaitThatCannotBe(t *testing.T) {
	bubble(t, 10, time.Second, func(t *testing.T, l *Limiter) {
		background := t.Context()
		if took, err := waited(background, l, 11); !errors.Is(err, hybridlimit.ErrExceedsBurst) || took != 0 {
			t.Errorf("above the burst: %v after %v", err, took)
		}
		if _, err := l.Wait(background, "", 1); !errors.Is(err, hybridlimit.ErrEmptyKey) {
			t.Errorf("no key: %v", err)
		}
		ended, cancel := context.WithCancel(background)
		cancel()
		if took, err := waited(ended, l, 1); !errors.Is(err, context.Canceled) || took != 0 || l.Len() != 0 {
			t.Errorf("ended ctx: %v after %v, %d keys", err, took, l.Len())
		}
		// Take all units, and in a queue all of its room.
		if _, err := l.AllowN(background, "k", 10); err != nil {
			t.Fatal(err)
		}
		before, err := l.PeekN(background, "k", 5)
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(background, 20*ms)
		defer cancel()
		if took, err := waited(soon, l, 5); !errors.Is(err, context.DeadlineExceeded) || took != 0 || soon.Err() != nil {
			t.Errorf("a deadline too soon: %v after %v", err, took)
		}
		if after, err := l.PeekN(background, "k", 5); err != nil || after != before {
			t.Errorf("a failed Wait changed the key from %+v to %+v (%v)", before, after, err)
		}
		time.Sleep(30 * ms)
		if took, err := waited(soon, l, 5); !errors.Is(err, context.DeadlineExceeded) || took != 0 {
			t.Errorf("a deadline in the past: %v after %v", err, took)
		}
	})
}

// TestWaitWithADeadlineThatJustSuffices checks that a wait succeeds if the deadline just
// suffices, and fails at once if the deadline is a nanosecond too early.
func TestWaitWithADeadlineThatJustSuffices(t *testing.T) {
	bubble(t, 10, time.Second, func(t *testing.T, l *Limiter) {
		if _, err := l.AllowN(t.Context(), "k", 10); err != nil {
			t.Fatal(err)
		}
		res, err := l.PeekN(t.Context(), "k", 5)
		need := res.RetryAfter
		if l.first.Algorithm == hybridlimit.AlgLeakyQueue {
			need = res.ResetAfter // the start of the call, not its entry into the queue
		}
		if err != nil || need == 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), need-1)
		defer cancel()
		if took, err := waited(ctx, l, 5); !errors.Is(err, context.DeadlineExceeded) || took != 0 {
			t.Errorf("%v less a nanosecond: %v after %v", need, err, took)
		}
		// At the very end, timer and ctx race.
		ctx, cancel = context.WithTimeout(t.Context(), need+1)
		defer cancel()
		if took, err := waited(ctx, l, 5); err != nil || took != need {
			t.Errorf("%v and a nanosecond: %v after %v", need, err, took)
		}
	})
}

// TestWaitGivesBack checks that a wait whose ctx ends leaves no units taken.
func TestWaitGivesBack(t *testing.T) {
	bubble(t, 10, time.Second, func(t *testing.T, l *Limiter) {
		if _, err := l.AllowN(t.Context(), "k", 10); err != nil {
			t.Fatal(err)
		}
		before, err := l.PeekN(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if took, err := waited(ctx, l, 1); !errors.Is(err, context.Canceled) || took != 50*ms {
					t.Errorf("%v after %v", err, took)
				}
			})
		}
		time.Sleep(50 * ms)
		cancel()
		wg.Wait()
		after, err := l.PeekN(t.Context(), "k", 1)
		before.RetryAfter -= 50 * ms
		before.ResetAfter -= 50 * ms
		before.Remaining = after.Remaining // not compared: it may change in 50 ms
		if err != nil || after != before {
			t.Errorf("%+v, want %+v (%v)", after, before, err)
		}
	})
}
