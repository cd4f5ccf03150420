package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestLooksAreNoUse checks which calls are a use of a key: the oldest of two keys is evicted by a third one, unless the call was
// a use of it.
func TestLooksAreNoUse(t *testing.T) {
	var booked *hybridlimit.Reservation // of the old key, before the young one was used
	for name, tc := range map[string]struct {
		call func(l *Limiter) error
		use  bool
	}{
		"peek":       {func(l *Limiter) error { _, err := l.Peek(t.Context(), "old"); return err }, false},
		"history":    {func(l *Limiter) error { _, err := l.History(t.Context(), "old"); return err }, false},
		"invalidate": {func(l *Limiter) error { return l.Invalidate("old") }, false},
		"cancel":     {func(*Limiter) error { return booked.Cancel(t.Context()) }, false},
		"denied":     {func(l *Limiter) error { _, err := l.AllowN(t.Context(), "old", 5); return err }, true},
		"refund":     {func(l *Limiter) error { _, err := l.Refund(t.Context(), "old", 1); return err }, true},
	} {
		l := must(t, hybridlimit.SlidingLog(5, time.Hour), Config{MaxKeys: 2})
		var err error
		if booked, err = l.Reserve(t.Context(), "old", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Allow(t.Context(), "young"); err != nil {
			t.Fatal(err)
		}
		if err := tc.call(l); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := l.Allow(t.Context(), "new"); err != nil {
			t.Fatal(err)
		}
		if kept := l.held("old") != nil; kept != tc.use {
			t.Errorf("%s: the key is kept: %t, want %t", name, kept, tc.use)
		}
	}
}
