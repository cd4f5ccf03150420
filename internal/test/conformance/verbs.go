package conformance

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// Limiter has all verbs of a limiter of units.
type Limiter interface {
	hybridlimit.Limiter
	AllowAtMost(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	AllowLimit(ctx context.Context, key string, n int64, limit hybridlimit.Limit) (hybridlimit.Result, error)
	Charge(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	Close() error
	History(ctx context.Context, key string) ([]hybridlimit.Admission, error)
	Peek(ctx context.Context, key string) (hybridlimit.Result, error)
	Refund(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	Reserve(ctx context.Context, key string, n int64) (*hybridlimit.Reservation, error)
	Reset(ctx context.Context, key string) error
	SetLimit(limit hybridlimit.Limit) error
	Wait(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
}

// atMost calls AllowAtMost for n units, and checks the properties that every answer must have.
func (s *subject) atMost(key string, n int64) hybridlimit.Result {
	s.t.Helper()
	res, err := s.lim.AllowAtMost(context.Background(), key, n)
	switch {
	case err != nil:
		s.t.Errorf("AllowAtMost(%q, %d): %v; a denial is no error", key, n, err)
	case res.Granted < 0 || res.Granted > n || res.Allowed != (res.Granted > 0):
		s.t.Errorf("AllowAtMost(%q, %d) = %+v: Granted must be 1 to %d if Allowed is true, and 0 if it is false", key, n, res, n)
	case (res.RetryAfter > 0) == res.Allowed || res.RetryAfter == hybridlimit.Never:
		s.t.Errorf("AllowAtMost(%q, %d) = %+v: RetryAfter must be 0 if Allowed is true, else above 0 and not Never", key, n, res)
	case res.Limit != s.limit.BurstSize() || res.Policy != s.spec.Policy:
		s.t.Errorf("AllowAtMost(%q, %d) = %+v: Limit must be %d, Policy %q", key, n, res, s.limit.BurstSize(), s.spec.Policy)
	}
	s.count(key, res)
	return res
}

// atMost checks that AllowAtMost gives all available units and no more, for any n.
func atMost(t *testing.T, spec Spec) {
	s := still(t, spec, 25)
	for i, n := range []int64{1, 7, 26, 1 << 53, math.MaxInt64} {
		key := "k" + string(rune('0'+i))
		if first := s.atMost(key, n); spec.Exact && first.Granted != min(n, 25) {
			t.Errorf("AllowAtMost(%d) of an unused key with 25 units granted %d", n, first.Granted)
		}
		for range 26 {
			if !s.atMost(key, n).Allowed {
				break
			}
		}
		if got := s.total(key); got == 0 || s.spec.Exact && got != 25 {
			t.Errorf("%d units of 25 were granted, by calls for at most %d", got, n)
		}
		if res := s.allow(key, 1); res.Allowed && s.spec.Exact {
			t.Errorf("a unit was admitted after all were taken: %+v", res)
		}
	}
}

// peek checks that Peek takes nothing, and that its Remaining is right.
func peek(t *testing.T, spec Spec) {
	s := still(t, spec, 10)
	look := func(key string) hybridlimit.Result {
		res, err := s.lim.Peek(context.Background(), key)
		if err != nil {
			t.Errorf("Peek: %v", err)
		}
		if res.Granted != 0 || res.Limit != 10 || res.Policy != s.spec.Policy || res.Remaining < 0 || res.Remaining > 10 ||
			(res.RetryAfter > 0) == res.Allowed || res.RetryAfter == hybridlimit.Never || res.Source == hybridlimit.SourceUnknown {
			t.Errorf("Peek(%q) = %+v", key, res)
		}
		return res
	}
	for _, used := range []int64{0, 3, 10} {
		key := "k" + string(rune('0'+used%10)) + string(rune('0'+used/10))
		if used > 0 {
			s.allow(key, used)
		}
		left := 10 - s.total(key)
		for range 25 {
			if res := look(key); s.spec.Exact && (res.Remaining != left || res.Allowed != (left > 0)) {
				t.Fatalf("Peek with %d units left: %+v", left, res)
			}
		}
		said := look(key).Remaining
		_, got := s.drain(key)
		if got > said || s.spec.Exact && got != said || said > 0 && got == 0 {
			t.Errorf("%d units were admitted, Remaining of the Peek before was %d", got, said)
		}
		if res := look(key); res.Allowed && s.spec.Exact {
			t.Errorf("Peek with no units left: %+v", res)
		}
	}
}

// charge checks that Charge debits units unconditionally, down to a burst of debt, and that no unit is admitted until
// the debt is paid.
func charge(t *testing.T, spec Spec) {
	s := still(t, spec, 10)
	debit := func(key string, n int64) {
		t.Helper()
		res, err := s.lim.Charge(context.Background(), key, n)
		if err != nil || !res.Allowed || res.Granted != n || res.RetryAfter != 0 || res.Limit != s.limit.BurstSize() || res.Policy != s.spec.Policy {
			t.Errorf("Charge(%q, %d) = %+v, %v", key, n, res, err)
		}
		s.mu.Lock()
		s.admitted[key] += n // charged units count in the bound for later admissions
		s.mu.Unlock()
	}
	debit("some", 4)
	s.drain("some")
	if got := s.total("some"); spec.Exact && got != 10 {
		t.Errorf("%d of 10 units were used, 4 of them by Charge; want 10", got)
	}
	for _, n := range []int64{11, 20} {
		key := "debt" + string(rune('0'+n%10))
		s.allow(key, 1)
		debit(key, n-1)
		if res := s.allow(key, 1); res.Allowed || res.Remaining != 0 {
			t.Errorf("%d of 10 charged: %+v", n-1, res)
		}
	}

	s = lively(t, spec)
	debit("k", 8) // 3 units of debt
	s.await("k", 1, s.allow("k", 1))
	for _, n := range []int64{1 << 53, math.MaxInt64} {
		for range 3 {
			if _, err := s.lim.Charge(context.Background(), "huge", n); err != nil {
				t.Errorf("Charge(%d): %v", n, err)
			}
		}
	}
	if res := s.allow("huge", 1); res.Allowed {
		t.Errorf("a unit was admitted with a debt of a burst: %+v", res)
	}
	s.spec.Sleep(2*s.limit.TimeToFull() + s.limit.TimeToFull()/2)
	s.await("huge", 1, s.allow("huge", 1))
}

// change makes a key with a burst of 10, of which 6 units are used, and each of the changes to another burst. left is
// the units that are available after it. A bucket keeps the units left. A queue, a window or a log keeps those used.
func change(t *testing.T, spec Spec, to func(s *subject, name string, limit hybridlimit.Limit, left int64)) {
	for name, burst := range map[string]int64{
		"the same": 10, "raised": 20, "lowered": 5, "lowered below what is left": 3,
	} {
		s := still(t, spec, 10)
		s.allow("k", 6)
		left := max(0, burst-s.total("k"))
		if s.booksAhead() {
			left = min(10-s.total("k"), burst)
		}
		to(s, name, s.spec.Bucket(1, s.limit.Period, burst), left)
	}
}

// allowLimit checks that used units stay used under the limit of one call.
func allowLimit(t *testing.T, spec Spec) {
	change(t, spec, func(s *subject, name string, limit hybridlimit.Limit, left int64) {
		burst, got := limit.BurstSize(), int64(0)
		for range 30 {
			res, err := s.lim.AllowLimit(context.Background(), "k", 1, limit)
			if err != nil || res.Limit != burst || res.Remaining > burst || res.Granted > 1 ||
				res.Allowed != (res.Granted == 1) || (res.RetryAfter > 0) == res.Allowed {
				t.Fatalf("%s: %+v, %v", name, res, err)
			}
			got += res.Granted
		}
		if got > left || spec.Exact && got != left {
			t.Errorf("%s: %d units could be had, want %d", name, got, left)
		}
		res, err := s.lim.AllowLimit(context.Background(), "k", burst+1, limit)
		if err != nil || res.Allowed || res.RetryAfter != hybridlimit.Never {
			t.Errorf("%s: above the burst: %+v, %v", name, res, err)
		}
		if res := s.allow("k", 1); res.Allowed && spec.Exact && s.total("k")+got > 10 {
			t.Errorf("%s: no unit is left, but a call under the key's own limit was admitted: %+v", name, res)
		}
	})
}

// setLimit checks that a new limit takes effect at once, and that used units stay used.
func setLimit(t *testing.T, spec Spec) {
	change(t, spec, func(s *subject, name string, limit hybridlimit.Limit, left int64) {
		if err := s.lim.SetLimit(limit); err != nil {
			t.Fatal(err)
		}
		s.limit = limit
		s.admitted["k"] = 0 // from here on it counts the units left
		_, got := s.drain("k")
		if got > left || spec.Exact && got != left {
			t.Errorf("%s: %d units could be had, want %d", name, got, left)
		}
		err := s.lim.SetLimit(hybridlimit.Limit{})
		if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Limit.Rate (0)") {
			t.Errorf("%s: SetLimit of the zero Limit: %v", name, err)
		}
		s.full("fresh", "an unused key has a burst of the last valid limit")
	})
}

// verb is one of the verbs, for n units of a key.
type verb struct {
	name string
	do   func(ctx context.Context, key string, n int64) (hybridlimit.Result, error)
	cost bool // n matters
}

// verbs returns the verbs of the limiter that give a Result, AllowN first.
func (s *subject) verbs() []verb {
	allow := func(ctx context.Context, key string, _ int64) (hybridlimit.Result, error) {
		return s.lim.Allow(ctx, key)
	}
	vs := []verb{{"AllowN", s.lim.AllowN, true}, {"Allow", allow, false}}
	if s.spec.partial {
		return vs
	}
	limit := s.limit
	byLimit := func(ctx context.Context, key string, n int64) (hybridlimit.Result, error) {
		return s.lim.AllowLimit(ctx, key, n, limit)
	}
	peek := func(ctx context.Context, key string, _ int64) (hybridlimit.Result, error) {
		return s.lim.Peek(ctx, key)
	}
	return append(vs, verb{"AllowAtMost", s.lim.AllowAtMost, true}, verb{"Peek", peek, false},
		verb{"Charge", s.lim.Charge, true}, verb{"AllowLimit", byLimit, true})
}

// verbsConcurrently runs all verbs concurrently while the limit changes. In the end the limiter is closed. It checks
// that each key gives out at most its burst.
func verbsConcurrently(t *testing.T, spec Spec) {
	s := still(t, spec, 60)
	small := s.spec.Bucket(1, s.limit.Period, 40)
	vs := s.verbs()
	together(spec.calls(40), func(g, i int) {
		key := "k" + string(rune('0'+(g+i)%3))
		if !spec.partial && i%10 == 0 {
			limit := []hybridlimit.Limit{s.limit, small}[(g+i/10)%2]
			if err := s.lim.SetLimit(limit); err != nil && !errors.Is(err, hybridlimit.ErrClosed) {
				t.Errorf("SetLimit: %v", err)
			}
		}
		if g == 0 && i == spec.calls(35) {
			if err := spec.Close(s.lim); err != nil {
				t.Error(err)
			}
		}
		v := vs[(g+i)%len(vs)]
		res, err := v.do(context.Background(), key, int64(1+i%3))
		switch {
		case err != nil && !errors.Is(err, hybridlimit.ErrClosed):
			t.Errorf("%s: %v", v.name, err)
		case err != nil && (res.Allowed || res.Granted != 0):
			t.Errorf("%s failed with %v, but its result grants units: %+v", v.name, err, res)
		case err == nil && v.name != "Charge":
			s.count(key, res)
		}
	})
}
