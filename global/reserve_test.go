package global_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
)

// TestReserve checks that a reservation takes units that refill later, has the right
// Delay, and can be cancelled.
func TestReserve(t *testing.T) {
	inBubble(t, hybridlimit.TokenBucket(10, time.Second, 5), global.Config{}, defaults, func(t *testing.T, s *scene) {
		ctx := t.Context()
		var last *hybridlimit.Reservation
		for i, want := range []time.Duration{0, 0, 100 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond} {
			r, err := s.Reserve(ctx, "k", 2)
			if err != nil || !r.Allowed || r.Granted != 2 || r.Delay != want {
				t.Errorf("reservation %d: %+v, %v, want a delay of %v", i, r.Result, err, want)
			}
			last = r
		}
		if r, err := s.Reserve(ctx, "k", 1); err != nil || r.Allowed || r.RetryAfter != 100*time.Millisecond {
			t.Errorf("a booking of more than a burst ahead: %+v, %v", r.Result, err)
		}
		if err := errors.Join(last.Cancel(ctx), last.Cancel(ctx)); err != nil {
			t.Error(err)
		}
		if r, err := s.Reserve(ctx, "k", 2); err != nil || r.Delay != 500*time.Millisecond {
			t.Errorf("after a Cancel: %+v, %v", r.Result, err)
		}
		if _, err := s.Reserve(ctx, "k", 6); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
			t.Error(err)
		}
	})
}

// TestWait checks that Wait returns when the units may be used, fails at once if the
// deadline cannot be met, and gives the units back if ctx ends.
func TestWait(t *testing.T) {
	for _, limit := range algorithms {
		t.Run(limit.String(), func(t *testing.T) {
			inBubble(t, limit, global.Config{}, defaults, func(t *testing.T, s *scene) {
				began := time.Now()
				for range 3 * limit.BurstSize() {
					if res, err := s.Wait(t.Context(), "k", 1); err != nil || !res.Allowed || res.Delay != 0 {
						t.Fatalf("%+v, %v", res, err)
					}
				}
				took, least := time.Since(began), limit.Period*time.Duration(3*limit.BurstSize()-limit.BurstSize()-1)/time.Duration(limit.Rate)
				if limit.Algorithm == hybridlimit.AlgFixedWindow || limit.Algorithm == hybridlimit.AlgSlidingWindow || limit.Algorithm == hybridlimit.AlgSlidingLog {
					least = limit.Period // the third burst waits for the end of two windows
				}
				if took < least || took > 3*limit.Period+time.Duration(3*limit.BurstSize())*limit.Period/time.Duration(limit.Rate) {
					t.Errorf("three bursts took %v, want at least %v", took, least)
				}

				time.Sleep(3*limit.Period + 3*limit.TimeToFull())
				for range limit.BurstSize() { // after these, a call has to wait
					allow(t, s.Limiter, "k", 1)
				}
				before, _ := s.Peek(t.Context(), "k")
				soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				began = time.Now()
				if _, err := s.Wait(soon, "k", 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 0 {
					t.Errorf("a deadline that cannot be met: %v after %v", err, time.Since(began))
				}
				cancel()
				ends, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				if _, err := s.Wait(ends, "k", 1); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if after, _ := s.Peek(t.Context(), "k"); after.RetryAfter > before.RetryAfter {
					t.Errorf("units were not given back: %v before, %v after", before.RetryAfter, after.RetryAfter)
				}
				if _, err := s.Wait(t.Context(), "k", limit.BurstSize()+1); !errors.Is(err, hybridlimit.ErrExceedsBurst) {
					t.Error(err)
				}
				time.AfterFunc(time.Millisecond, func() { s.Close() })
				if _, err := s.Wait(t.Context(), "k", 1); !errors.Is(err, hybridlimit.ErrClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// TestRefundAndReset checks that refunded units are available again, up to a full key, and
// that Reset forgets all usage and debt.
func TestRefundAndReset(t *testing.T) {
	for _, limit := range algorithms {
		t.Run(limit.String(), func(t *testing.T) {
			inBubble(t, limit, global.Config{}, defaults, func(t *testing.T, s *scene) {
				peek := func(want int64, when string) {
					t.Helper()
					if res, err := s.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
						t.Errorf("%s: %+v, %v, want %d left", when, res, err, want)
					}
				}
				burst := limit.BurstSize()
				allow(t, s.Limiter, "k", burst)
				if res, err := s.Refund(t.Context(), "k", 1); err != nil || !res.Allowed || res.Remaining != 1 {
					t.Errorf("%+v, %v", res, err)
				}
				peek(1, "after a refund")
				for range 3 {
					if _, err := s.Refund(t.Context(), "k", burst); err != nil {
						t.Error(err)
					}
				}
				peek(burst, "after too many")
				if _, err := s.Charge(t.Context(), "k", burst+1); err != nil {
					t.Error(err)
				}
				peek(0, "in debt")
				if err := s.Reset(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				peek(burst, "after a reset")
				if _, err := s.Refund(t.Context(), "k", 0); !errors.Is(err, hybridlimit.ErrCost) {
					t.Error(err)
				}
				if err := s.Reset(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
					t.Error(err)
				}
			})
		})
	}
}
