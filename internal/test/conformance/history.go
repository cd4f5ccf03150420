package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// history checks that a log returns the admissions of a key, with times and request ids. Other algorithms return
// ErrUnsupported.
func history(t *testing.T, spec Spec) {
	s := still(t, spec, 5)
	ctx := context.Background()
	began := time.Now()
	for _, id := range []string{"a", "\x00 {é}", ""} {
		with, err := hybridlimit.WithRequestID(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.lim.AllowN(with, "k", 1); err != nil {
			t.Fatal(err)
		}
	}
	if res, err := s.lim.AllowN(ctx, "k", 4); err != nil || res.Allowed && spec.Exact { // two are left
		t.Errorf("%+v, %v", res, err)
	}
	s.allow("other", 2)
	log, err := s.lim.History(ctx, "k")
	if _, noKey := s.lim.History(ctx, ""); !errors.Is(noKey, hybridlimit.ErrEmptyKey) {
		t.Errorf("no key: %v", noKey)
	}
	if s.limit.Algorithm != hybridlimit.AlgSlidingLog {
		if !errors.Is(err, hybridlimit.ErrUnsupported) || len(log) > 0 {
			t.Errorf("a %v has a history: %+v, %v", s.limit.Algorithm, log, err)
		}
	} else if err != nil || len(log) != 3 || log[0].RequestID != "a" || log[1].RequestID != "\x00 {é}" || log[2].RequestID != "" {
		t.Errorf("%+v, %v", log, err)
	}
	for i, a := range log {
		// Test and limiter may have different clocks, and a log in Redis puts entries 1 µs apart.
		if off := a.At.Sub(began).Abs(); a.Units != 1 || off > time.Minute || i > 0 && a.At.Before(log[i-1].At) {
			t.Errorf("entry %d: %+v, %v away from the time of the calls", i, a, off)
		}
	}
	if err := spec.Close(s.lim); err != nil {
		t.Fatal(err)
	}
	if _, err := s.lim.History(ctx, "k"); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
