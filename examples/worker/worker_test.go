package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestWaitShapes checks on virtual time that every shaped call is served, and
// that none comes too early.
func TestWaitShapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		connect := func() redis.UniversalClient { return b.Client(nil) }
		for _, shaped := range []bool{false, true} {
			api, err := newPartner()
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := runFleet(t.Context(), connect, api, shaped); err != nil {
				t.Fatal(err)
			}
			all := int64(processes * jobs)
			switch {
			case !shaped && (api.served.Load() != allowed.BurstSize() || api.refused.Load() != all-allowed.BurstSize()):
				t.Errorf("unshaped: %d served, %d refused, want the burst served and the rest refused", api.served.Load(), api.refused.Load())
			case shaped && (api.served.Load() != all || api.refused.Load() != 0):
				t.Errorf("shaped: %d served, %d refused, want all served", api.served.Load(), api.refused.Load())
			case shaped && time.Since(start) < time.Duration(all-1)*pace.Period/time.Duration(pace.Rate):
				t.Errorf("shaped: all calls were done in %v, which is too fast", time.Since(start))
			}
		}
	})
}

// TestWorkersStop checks that a stopped worker does not wait for its turn.
func TestWorkersStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		api, err := newPartner()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		err = runFleet(ctx, func() redis.UniversalClient { return b.Client(nil) }, api, true)
		if served := api.served.Load(); !errors.Is(err, context.Canceled) || served == 0 || served == processes*jobs {
			t.Errorf("%v, %d served", err, served)
		}
	})
}
