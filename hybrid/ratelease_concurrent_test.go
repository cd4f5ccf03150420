package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestRateLeasesConcurrent makes calls of few and of many keys from many goroutines, while the limit changes, keys are
// reset, and Redis goes and comes. Then it shuts the hub down under calls. It shows races, and calls that never return.
func TestRateLeasesConcurrent(t *testing.T) {
	srv := redistest.New(t)
	var hubs []*hybrid.Hub
	var all []*hybrid.RateLeaseLimiter
	for range 2 {
		h := newHub(t, srv.Client(t), hybrid.HubConfig{FleetSize: 2})
		l, err := h.RateLeases(hybridlimit.PerSecond(10_000), hybrid.RateLeaseConfig{Name: "hot", MaxKeys: 100})
		if err != nil {
			t.Fatal(err)
		}
		hubs, all = append(hubs, h), append(all, l)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	run := func(f func(i int) error) {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := f(i); err != nil && !errors.Is(err, hybridlimit.ErrClosed) && !errors.Is(err, hybridlimit.ErrUnavailable) && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	turns := make(chan struct{}) // for the changes: one for a hundred calls
	for _, l := range all {
		for range 3 {
			run(func(i int) error {
				if i%100 == 0 {
					select {
					case turns <- struct{}{}:
					default:
					}
				}
				_, err := l.Allow(context.Background(), "k")
				return err
			})
		}
		run(func(i int) error {
			_, err := l.AllowN(context.Background(), fmt.Sprint("key", i%300), int64(1+i%5))
			return err
		})
		run(func(i int) error {
			short, cancel := context.WithTimeout(context.Background(), time.Duration(i%3)*time.Millisecond)
			defer cancel()
			if _, err := l.Allow(short, fmt.Sprint("key", i%400)); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		})
		run(func(i int) error {
			select {
			case <-turns:
			case <-ctx.Done():
				return nil
			}
			l.Stats()
			if _, err := l.Inspect(context.Background(), "k"); err != nil {
				return err
			}
			if err := l.SetLimit(hybridlimit.PerSecond(10_000 + int64(i%2))); err != nil && i%2 == 0 {
				return nil // the other limiter of this program has the other limit
			}
			return l.Reset(context.Background(), "k")
		})
	}
	more := func(what string, count func(hybrid.RateLeaseStats) int64) {
		before := count(all[0].Stats())
		redistest.Eventually(t, time.Minute, what, func() bool { return count(all[0].Stats()) >= before+50 })
	}
	exchanges := func(s hybrid.RateLeaseStats) int64 { return s.Paid + s.Allowed[hybridlimit.SourceRedis] }
	for i := range 3 {
		more("answers of Redis", exchanges)
		srv.Kill()
		if i > 0 {
			more("decisions without Redis", func(s hybrid.RateLeaseStats) int64 {
				return s.Allowed[hybridlimit.SourceFallback] + s.Denied[hybridlimit.SourceFallback]
			})
		}
		if err := srv.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	more("answers of Redis", exchanges)
	if err := all[0].Shutdown(context.Background()); err != nil && !errors.Is(err, hybridlimit.ErrUnavailable) {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := hubs[1].Shutdown(short); err != nil && !errors.Is(err, hybridlimit.ErrUnavailable) {
		t.Error(err)
	}
	stop()
	wg.Wait()
	for _, l := range all {
		if s := l.Stats(); s.Decisions() == 0 || s.Keys > 100 {
			t.Errorf("%+v", s)
		}
	}
}
