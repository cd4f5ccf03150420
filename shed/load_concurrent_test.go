package shed_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/shed"
)

func TestCancelledContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shedder(t, shed.Config{Classes: classes, Healthy: time.Second, MaxInFlight: 1, MaxWait: time.Minute})
		p := acquire(t, s, "write")
		var all sync.WaitGroup
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(1000))*time.Millisecond)
			all.Go(func() {
				defer cancel()
				began := time.Now()
				got, res, err := s.Acquire(ctx, "read")
				if got != (hybridlimit.Permit{}) || res != (hybridlimit.Result{}) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) >= time.Second {
					t.Errorf("%v, %+v, %v after %v", got, res, err, time.Since(began))
				}
			})
		}
		all.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if got, _, err := s.Acquire(ended, "critical"); got != (hybridlimit.Permit{}) || !errors.Is(err, context.Canceled) {
			t.Errorf("an ended context: %v, %v", got, err)
		}
		if n := s.Stats(); n.Waiting != 0 || n.InFlight != 1 || n.Share != 0 {
			t.Errorf("%+v", n)
		}
		p.Release()
		acquire(t, s, "read").Release()
	})
}

// TestCloseDuringLoad closes beside waiting, running and arriving calls. The bubble
// of synctest fails if a goroutine is left.
func TestCloseDuringLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shedder(t, shed.Config{Classes: classes, Healthy: time.Second, MaxInFlight: 2, MaxWait: time.Minute})
		running := []hybridlimit.Permit{acquire(t, s, "write"), acquire(t, s, "critical")}
		var all sync.WaitGroup
		var refused atomic.Int64
		for range 100 {
			all.Go(func() {
				if _, _, err := s.Acquire(t.Context(), "read"); errors.Is(err, hybridlimit.ErrClosed) {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		for range 10 { // idempotent, also at the same time
			all.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := refused.Load(); n != 100 {
			t.Errorf("%d of 100 waits ended with ErrClosed", n)
		}
		for _, class := range classes {
			if p, res, err := s.Acquire(t.Context(), class); p != (hybridlimit.Permit{}) || res.Allowed || !errors.Is(err, hybridlimit.ErrClosed) {
				t.Errorf("%s after Close: %+v, %v", class, res, err)
			}
		}
		for _, p := range running {
			p.Release()
		}
		if n := s.Stats(); n.InFlight != 0 || n.Waiting != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// TestManyGoroutines runs 10 000 calls at once in real time, with cancelled
// contexts, panics and permits that are released twice. At the end nothing is held.
func TestManyGoroutines(t *testing.T) {
	s := shedder(t, shed.Config{Classes: classes, Healthy: time.Second, MaxInFlight: 50, Logger: slog.New(slog.DiscardHandler)})
	var all sync.WaitGroup
	var decided atomic.Int64
	for i := range 10_000 {
		all.Go(func() {
			defer func() { recover() }()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%3 == 0 {
				all.Go(cancel)
			}
			p, _, err := s.Acquire(ctx, classes[i%4])
			if err == nil {
				decided.Add(1)
			}
			defer p.Release()
			switch {
			case i%5 == 0:
				p.Release()
			case i%7 == 0:
				panic("of a handler")
			}
		})
	}
	all.Wait()
	n := s.Stats()
	var counted int64
	for _, c := range n.Classes {
		counted += c.Allowed + c.Shed
	}
	if n.InFlight != 0 || n.Waiting != 0 || counted != decided.Load() {
		t.Errorf("%d of %d calls counted, %+v", counted, decided.Load(), n)
	}
	for range n.Limit { // every place is free
		acquire(t, s, "write")
	}
}
