package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// chargeAndRefund checks that charged units are gone, and that refunded units are available again, up to a burst.
func chargeAndRefund(t *testing.T, spec Spec) {
	ctx := context.Background()
	s := still(t, spec, 10)
	if !spec.Exact {
		return
	}
	if _, err := s.lim.Charge(ctx, "k", 13); err != nil {
		t.Fatal(err)
	}
	if res := s.allow("k", 1); res.Allowed {
		t.Errorf("admitted in debt: %+v", res)
	}
	if _, err := s.lim.Refund(ctx, "k", 3+4); err != nil {
		t.Fatal(err)
	}
	if _, n := s.drain("k"); n != 4 {
		t.Errorf("%d units were left after the refund, want 4", n)
	}
	// A refund of more units than were taken gives at most a burst.
	fresh := still(t, spec, 10)
	for _, n := range []int64{1, 10, 1 << 40} {
		if _, err := fresh.lim.Refund(ctx, "k", n); err != nil {
			t.Fatal(err)
		}
	}
	fresh.full("k", "a refund of an unused key changes nothing")
	_, noKey := s.lim.Refund(ctx, "", 1)
	_, noCost := s.lim.Refund(ctx, "k", 0)
	if !errors.Is(noKey, hybridlimit.ErrEmptyKey) || !errors.Is(noCost, hybridlimit.ErrCost) {
		t.Errorf("bad input: %v, %v", noKey, noCost)
	}
}

// reset checks that Reset gives a key the state of an unused one, and changes no other key.
func reset(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	if !spec.Exact {
		return
	}
	s.drain("k")
	s.drain("other")
	if err := s.lim.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	s.forget("k")
	s.full("k", "the key was reset")
	if res := s.allow("other", 1); res.Allowed {
		t.Errorf("Reset also changed another key: %+v", res)
	}
}

// reserve checks that reserved units are taken, and that Cancel gives them back.
func reserve(t *testing.T, spec Spec) {
	ctx := context.Background()
	s := still(t, spec, 5)
	if !spec.Exact {
		return
	}
	r, err := s.lim.Reserve(ctx, "k", 3)
	if err != nil || !r.Allowed || r.Granted != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if res := s.allow("k", 3); res.Allowed {
		t.Errorf("reserved units were admitted again: %+v", res)
	}
	for range 2 {
		if err := r.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s.full("k", "the reservation was cancelled")
	if _, err := s.lim.Reserve(ctx, "k", 6); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
		t.Errorf("above the burst: %v", err)
	}
}

// wait checks that Wait ends with an admission, and that it fails at once if the units cannot be there in time.
func wait(t *testing.T, spec Spec) {
	s := lively(t, spec)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 12 {
		res, err := s.lim.Wait(ctx, "k", 1)
		if err != nil || !res.Allowed || res.Granted != 1 || res.Delay != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		s.count("k", res)
	}
	if _, err := s.lim.Wait(ctx, "k", 6); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
		t.Errorf("above the burst: %v", err)
	}
	if !spec.Exact {
		return
	}
	// Take all units; in a queue, fill it.
	quiet := still(t, spec, 1)
	quiet.drain("k")
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := quiet.lim.Wait(soon, "k", 1)
	if !errors.Is(err, context.DeadlineExceeded) || soon.Err() != nil || res.Allowed {
		t.Errorf("Wait for a unit that comes in an hour, with a deadline in a minute: %+v, %v (ctx: %v), want DeadlineExceeded at once", res, err, soon.Err())
	}
}
