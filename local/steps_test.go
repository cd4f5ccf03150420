package local

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

const ms = time.Millisecond

type step struct {
	at               time.Duration
	n                int64
	allowed          bool
	remaining        int64
	retryIn, resetIn time.Duration
}

func TestSteps(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit
		steps []step
	}{
		{"ten a second", hybridlimit.TokenBucket(10, time.Second, 3), []step{
			{0, 1, true, 2, 0, 100 * ms},
			{0, 1, true, 1, 0, 200 * ms},
			{0, 1, true, 0, 0, 300 * ms},
			{0, 1, false, 0, 100 * ms, 300 * ms},
			{0, 3, false, 0, 300 * ms, 300 * ms},
			{99 * ms, 1, false, 0, 1 * ms, 201 * ms},
			{100 * ms, 1, true, 0, 0, 300 * ms},
			{250 * ms, 2, false, 1, 50 * ms, 150 * ms},
			{300 * ms, 2, true, 0, 0, 300 * ms},
			{time.Hour, 3, true, 0, 0, 300 * ms},
		}},
		{"above the burst", hybridlimit.TokenBucket(10, time.Second, 3), []step{
			{0, 4, false, 3, hybridlimit.Never, 0},
			{0, 2, true, 1, 0, 200 * ms},
			{0, 4, false, 1, hybridlimit.Never, 200 * ms},
			{50 * ms, 4, false, 1, hybridlimit.Never, 150 * ms},
		}},
		{"burst of the rate", hybridlimit.PerMinute(2), []step{
			{0, 2, true, 0, 0, time.Minute},
			{0, 1, false, 0, 30 * time.Second, time.Minute},
			{30 * time.Second, 1, true, 0, 0, time.Minute},
		}},
		{"one a day", hybridlimit.TokenBucket(1, 24*time.Hour, 1), []step{
			{0, 1, true, 0, 0, 24 * time.Hour},
			{time.Hour, 1, false, 0, 23 * time.Hour, 23 * time.Hour},
			{24*time.Hour - 1, 1, false, 0, 1, 1},
			{24 * time.Hour, 1, true, 0, 0, 24 * time.Hour},
		}},
		// A third of a second is no whole number of ns. A call that comes a third
		// of a nanosecond early is admitted, and the next call pays for it.
		{"three a second", hybridlimit.PerSecond(3), []step{
			{0, 3, true, 0, 0, time.Second},
			{0, 1, false, 0, 333333333, time.Second},
			{333333331, 1, false, 0, 2, 666666669},
			{333333333, 1, true, 0, 0, time.Second},
			{333333333, 1, false, 0, 333333334, time.Second},
			{666666666, 2, false, 1, 333333334, 666666667},
			{666666666, 1, true, 0, 0, time.Second + 1},
			{999999997, 1, false, 0, 3, 666666670},
		}},
		{"ten million a second", hybridlimit.PerSecond(10_000_000), []step{
			{0, 10_000_000, true, 0, 0, time.Second},
			{0, 1, false, 0, 100, time.Second},
			{99, 1, false, 0, 1, time.Second - 99},
			{100, 1, true, 0, 0, time.Second},
			{250, 2, false, 1, 50, time.Second - 150},
		}},
		// The clock never goes back: the refill until 200 ms does not happen
		// again, and RetryAfter counts from the caller's own time.
		{"out of order", hybridlimit.TokenBucket(10, time.Second, 3), []step{
			{0, 3, true, 0, 0, 300 * ms},
			{200 * ms, 1, true, 1, 0, 200 * ms},
			{100 * ms, 1, true, 0, 0, 400 * ms},
			{150 * ms, 1, false, 0, 150 * ms, 350 * ms},
			{200 * ms, 1, false, 0, 100 * ms, 300 * ms},
			{-time.Hour, 1, false, 0, time.Hour + 300*ms, time.Hour + 500*ms},
			{300 * ms, 1, true, 0, 0, 300 * ms},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, start := at(t, tc.limit, Config{Name: "p"})
			for i, s := range tc.steps {
				res := ask(t, l, start.Add(s.at), "k", s.n)
				want := hybridlimit.Result{
					Allowed: s.allowed, Limit: tc.limit.BurstSize(), Remaining: s.remaining,
					RetryAfter: s.retryIn, ResetAfter: s.resetIn, Source: hybridlimit.SourceLocal, Policy: "p",
				}
				if s.allowed {
					want.Granted = s.n
				}
				if s.retryIn == hybridlimit.Never {
					want.Source = hybridlimit.SourceStatic
				}
				if res != want {
					t.Errorf("step %d, %d at %v:\n got %+v\nwant %+v", i, s.n, s.at, res, want)
				}
			}
		})
	}
}

func TestBadInputTouchesNothing(t *testing.T) {
	l, start := at(t, hybridlimit.PerSecond(1), Config{MaxKeyBytes: 3})
	for _, tc := range []struct {
		key  string
		n    int64
		want error
	}{
		{"", 1, hybridlimit.ErrEmptyKey},
		{"four", 1, hybridlimit.ErrKeyTooLong},
		{"four", 9, hybridlimit.ErrKeyTooLong},
		{"k", 0, hybridlimit.ErrCost},
		{"k", -1, hybridlimit.ErrCost},
	} {
		res, err := l.allowAt(start.Add(time.Hour), tc.key, tc.n)
		if res != (hybridlimit.Result{}) || !errors.Is(err, tc.want) || !strings.HasPrefix(err.Error(), "local: ") {
			t.Errorf("allowAt(%q, %d) = %+v, %v; want %v", tc.key, tc.n, res, err, tc.want)
		}
	}
	for _, key := range []string{"", "four"} {
		if _, err := l.Peek(context.Background(), key); err == nil {
			t.Errorf("Peek(%q) is no error", key)
		}
		if err := l.Reset(context.Background(), key); err == nil {
			t.Errorf("Reset(%q) is no error", key)
		}
	}
	if l.Len() != 0 || l.shards[0].now != 0 {
		t.Errorf("bad input left %d keys and the clock at %v", l.Len(), l.shards[0].now)
	}
}

func TestPeekAndResetAndClose(t *testing.T) {
	ctx := context.Background()
	l, start := at(t, hybridlimit.TokenBucket(10, time.Second, 3), Config{})
	peek := func(d time.Duration) hybridlimit.Result {
		t.Helper()
		res, err := l.peekAt(start.Add(d), "k")
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	fresh := hybridlimit.Result{Allowed: true, Limit: 3, Remaining: 3, Source: hybridlimit.SourceLocal}
	for range 2 {
		if got := peek(0); got != fresh {
			t.Errorf("Peek of a fresh key: %+v", got)
		}
	}
	if res := ask(t, l, start, "k", 4); res.Allowed || l.Len() != 0 {
		t.Errorf("Peek, or a call above the burst, made %d keys (%+v)", l.Len(), res)
	}
	ask(t, l, start, "k", 3)
	for range 2 {
		want := hybridlimit.Result{Limit: 3, RetryAfter: 50 * ms, ResetAfter: 250 * ms, Source: hybridlimit.SourceLocal}
		if got := peek(50 * ms); got != want {
			t.Errorf("Peek of a used key: %+v, want %+v", got, want)
		}
	}
	if err := l.Reset(ctx, "k"); err != nil || l.Len() != 0 {
		t.Errorf("Reset: %v, %d keys", err, l.Len())
	}
	if got := peek(50 * ms); got != fresh {
		t.Errorf("Peek after Reset: %+v", got)
	}
	ask(t, l, start, "k", 1)
	if err := errors.Join(l.Close(), l.Close()); err != nil || l.Len() != 0 {
		t.Errorf("Close: %v, %d keys", err, l.Len())
	}
	_, err1 := l.Peek(ctx, "k")
	_, err2 := l.AllowN(ctx, "k", 4)
	for _, err := range []error{err1, err2, l.Reset(ctx, "k")} {
		if !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
}
