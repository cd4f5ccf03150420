package runner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// TestSetTimeout checks that connections wait as long as was set last, on the caller's goroutine and on another one.
func TestSetTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		r, err := runner.New(link.Client(nil), 250*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := r.Batch(ctx, wire.Envelope{}, nil); err != nil { // opens a connection, loads the script
			t.Fatal(err)
		}
		link.Latency(300*time.Millisecond, 300*time.Millisecond)
		for _, tc := range []struct {
			timeout time.Duration
			ok      bool
		}{{250 * time.Millisecond, false}, {time.Second, true}, {600 * time.Millisecond, true}, {100 * time.Millisecond, false}} {
			r.SetTimeout(tc.timeout)
			for _, here := range []bool{false, true} {
				ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
				bounded := context.Context(ctx)
				if here {
					bounded = runner.Here(ctx)
				}
				began := time.Now()
				_, err := r.Batch(bounded, wire.Envelope{}, nil)
				cancel()
				if ok := err == nil; ok != tc.ok || !ok && errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("time-out %v, here %t: %v after %v", tc.timeout, here, err, time.Since(began))
				}
			}
		}
	})
}
