package hybridlimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit"
)

// TestReservationIsCancelledOnce cancels one reservation from many goroutines. Each gets the
// answer of the one cancellation.
func TestReservationIsCancelledOnce(t *testing.T) {
	gone := errors.New("gone")
	var calls atomic.Int64
	r := hybridlimit.NewReservation(hybridlimit.Result{Allowed: true, Granted: 3}, func(context.Context) error { calls.Add(1); return gone })
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if err := r.Cancel(t.Context()); !errors.Is(err, gone) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("cancelled %d times", n)
	}
}
