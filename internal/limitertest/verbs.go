package limitertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// The verbs that a limiter may have besides those of hybridlimit.Limiter. A case
// of the suite passes without a word over a limiter that has not got its verb.
type (
	atMoster interface {
		AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	}
	peeker interface {
		Peek(ctx context.Context, key string) (hybridlimit.Result, error)
	}
	charger interface {
		Charge(ctx context.Context, key string, n int64) error
	}
	refunder interface {
		Refund(ctx context.Context, key string, n int64) error
	}
	resetter interface {
		Reset(ctx context.Context, key string) error
	}
	limitAllower interface {
		AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error)
	}
	limitSetter interface {
		SetLimit(limit hybridlimit.Limit) error
	}
	reserver interface {
		Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error)
	}
	waiter interface {
		Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	}
)

// Window makes a window into a Spec's Bucket: as many units as the burst, in the
// time in which a bucket would fill.
func Window(of func(n int64, window time.Duration) hybridlimit.Limit) func(int64, time.Duration, int64) hybridlimit.Limit {
	return func(rate int64, per time.Duration, burst int64) hybridlimit.Limit {
		return of(burst, hybridlimit.TokenBucket(rate, per, burst).TimeToFull())
	}
}

// As much as there is, and what is there is told by Allowed and Granted.
func atMost(t *testing.T, spec Spec) {
	s := still(t, spec, 10)
	l, ok := s.lim.(atMoster)
	if !ok {
		return
	}
	for i, want := range []struct{ n, granted int64 }{{4, 4}, {1, 1}, {100, 5}, {3, 0}} {
		res, err := l.AllowAtMost(context.Background(), "k", want.n)
		switch {
		case err != nil:
			t.Fatalf("step %d: %v", i, err)
		case res.Granted < 0 || res.Granted > want.n || res.Allowed != (res.Granted > 0) || res.Allowed != (res.RetryAfter == 0):
			t.Errorf("step %d, at most %d: %+v", i, want.n, res)
		case spec.Exact && res.Granted != want.granted:
			t.Errorf("step %d, at most %d: %+v, want %d", i, want.n, res, want.granted)
		}
		s.count("k", res)
	}
}

// Looking takes nothing, and says what would be.
func peek(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	l, ok := s.lim.(peeker)
	if !ok {
		return
	}
	look := func() hybridlimit.Result {
		res, err := l.Peek(context.Background(), "k")
		if err != nil || res.Granted != 0 || res.Limit != 5 {
			t.Fatalf("%+v, %v", res, err)
		}
		return res
	}
	for range 20 {
		look()
	}
	s.full("k", "looking takes nothing")
	for range 20 {
		if res := look(); spec.Exact && (res.Allowed || res.RetryAfter <= 0) {
			t.Errorf("Peek of a key that is used up: %+v", res)
		}
	}
}

// What is charged lacks, and what is refunded is there again, up to a burst.
func chargeAndRefund(t *testing.T, spec Spec) {
	ctx := context.Background()
	s := still(t, spec, 10)
	c, ok1 := s.lim.(charger)
	r, ok2 := s.lim.(refunder)
	if !ok1 || !ok2 || !spec.Exact {
		return
	}
	if err := c.Charge(ctx, "k", 13); err != nil {
		t.Fatal(err)
	}
	if res := s.allow("k", 1); res.Allowed {
		t.Errorf("admitted in debt: %+v", res)
	}
	if err := r.Refund(ctx, "k", 3+4); err != nil {
		t.Fatal(err)
	}
	if _, n := s.drain("k"); n != 4 {
		t.Errorf("%d units were left, want 4", n)
	}
	// More than was ever taken makes no more than a burst.
	fresh := still(t, spec, 10)
	for _, n := range []int64{1, 10, 1 << 40} {
		if err := fresh.lim.(refunder).Refund(ctx, "k", n); err != nil {
			t.Fatal(err)
		}
	}
	fresh.full("k", "refunds end at full")
	if err := errors.Join(r.Refund(ctx, "", 1), c.Charge(ctx, "k", 0)); !errors.Is(err, hybridlimit.ErrEmptyKey) || !errors.Is(err, hybridlimit.ErrCost) {
		t.Errorf("bad input: %v", err)
	}
}

// A key that was reset is as if never used, and no other is.
func reset(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	l, ok := s.lim.(resetter)
	if !ok || !spec.Exact {
		return
	}
	s.drain("k")
	s.drain("other")
	if err := l.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	s.forget("k")
	s.full("k", "it was reset")
	if res := s.allow("other", 1); res.Allowed {
		t.Errorf("another key was reset, too: %+v", res)
	}
}

// A limit that comes with a call holds for this call, and a bad one is an error.
func limitOfACall(t *testing.T, spec Spec) {
	ctx := context.Background()
	s := still(t, spec, 5)
	l, ok := s.lim.(limitAllower)
	if !ok || !spec.Exact {
		return
	}
	other := s.spec.Bucket(1, time.Hour, 9)
	for left := int64(8); left >= 0; left-- {
		if res, err := l.AllowLimit(ctx, "k", 1, other); err != nil || !res.Allowed || res.Limit != 9 || res.Remaining != left {
			t.Fatalf("of 9: %+v, %v; want %d left", res, err, left)
		}
	}
	if res, err := l.AllowLimit(ctx, "k", 1, other); err != nil || res.Allowed || res.RetryAfter <= 0 {
		t.Errorf("the tenth of 9: %+v, %v", res, err)
	}
	if res := s.allow("k", 1); res.Allowed { // the use is the key's, not the limit's
		t.Errorf("admitted under the limiter's own limit: %+v", res)
	}
	if _, err := l.AllowLimit(ctx, "k", 1, hybridlimit.Limit{}); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("no limit: %v", err)
	}
}

// A limit that is set is no refill.
func setLimit(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	l, ok := s.lim.(limitSetter)
	if !ok || !spec.Exact {
		return
	}
	s.drain("k")
	s.forget("k") // what was admitted under another limit
	for range 3 {
		for _, burst := range []int64{3, 5} {
			s.limit = s.spec.Bucket(1, time.Hour, burst)
			if err := l.SetLimit(s.limit); err != nil {
				t.Fatal(err)
			}
			if res := s.allow("k", 1); res.Allowed {
				t.Errorf("%v refilled the key: %+v", s.limit, res)
			}
		}
	}
	s.full("fresh", "the limit is set for all keys")
	if err := l.SetLimit(hybridlimit.Limit{}); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("no limit: %v", err)
	}
}

// What is reserved is taken, and given back by Cancel.
func reserve(t *testing.T, spec Spec) {
	ctx := context.Background()
	s := still(t, spec, 5)
	l, ok := s.lim.(reserver)
	if !ok || !spec.Exact {
		return
	}
	r, err := l.Reserve(ctx, "k", 3)
	if err != nil || !r.Allowed || r.Granted != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if res := s.allow("k", 3); res.Allowed {
		t.Errorf("admitted what is reserved: %+v", res)
	}
	for range 2 {
		if err := r.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s.full("k", "the reservation was cancelled")
	if _, err := l.Reserve(ctx, "k", 6); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
		t.Errorf("above the burst: %v", err)
	}
}

// Waiting ends with an admission, in time; what cannot be is said at once.
func wait(t *testing.T, spec Spec) {
	s := lively(t, spec)
	l, ok := s.lim.(waiter)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 12 {
		res, err := l.Wait(ctx, "k", 1)
		if err != nil || !res.Allowed || res.Granted != 1 || res.Delay != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		s.count("k", res)
	}
	if _, err := l.Wait(ctx, "k", 6); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
		t.Errorf("above the burst: %v", err)
	}
	if !spec.Exact {
		return
	}
	// Used up, and in a queue full.
	quiet := still(t, spec, 1)
	quiet.drain("k")
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if res, err := quiet.lim.(waiter).Wait(soon, "k", 1); !errors.Is(err, context.DeadlineExceeded) || soon.Err() != nil || res.Allowed {
		t.Errorf("a unit an hour away, and a minute's time: %+v, %v (ctx: %v)", res, err, soon.Err())
	}
}
