package otellimit_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/otellimit"
)

// TestCallsAreCountedConcurrently calls wrapped limiters from many goroutines while others are
// wrapped and the metrics are collected. No call is lost.
func TestCallsAreCountedConcurrently(t *testing.T) {
	const goroutines, each = 8, 200
	p := &metertest.Provider{}
	r := recorder(t, otellimit.Config{MeterProvider: p})
	api := must[hybridlimit.Limiter](t)(r.Wrap("api", limittest.AllowAll()))
	jobs := must[hybridlimit.Limiter](t)(r.Wrap("jobs", limittest.RecordPermits(nil))).(hybridlimit.Acquirer)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			if _, err := r.Wrap(fmt.Sprint("more", g), limittest.DenyAll(1)); err != nil {
				t.Error(err)
			}
			for range each {
				if _, err := api.Allow(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				permit, _, err := jobs.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				permit.Release()
			}
		})
	}
	all.Go(func() {
		for range 50 {
			p.Collect(t)
		}
	})
	all.Wait()
	got := p.Collect(t)
	var calls int64
	for _, source := range []string{"local", "static", "redis"} {
		calls += got["rate_limiting.decisions{rate_limiting.policy=api,rate_limiting.result=allowed,rate_limiting.source="+source+"}"]
	}
	if n := got["rate_limiting.permits.running{rate_limiting.policy=jobs}"]; calls != goroutines*each || n != 0 {
		t.Errorf("%d calls are counted, want %d; %d permits run; %v", calls, goroutines*each, n, got)
	}
}
