package local_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// TestARaisedLimitOfAUsedUpKey checks what docs/limits.md says of each algorithm: 10 units are used up, and the limit is raised to 20.
// internal/test/conformance compares the packages in such changes.
func TestARaisedLimitOfAUsedUpKey(t *testing.T) {
	for _, c := range []struct {
		algorithm hybridlimit.Algorithm
		atOnce    int64
	}{
		{hybridlimit.AlgTokenBucket, 0},
		{hybridlimit.AlgLeakyBucket, 0},
		{hybridlimit.AlgLeakyQueue, 10},
		{hybridlimit.AlgFixedWindow, 10},
		{hybridlimit.AlgSlidingWindow, 10},
		{hybridlimit.AlgSlidingLog, 10},
	} {
		t.Run(c.algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := func(rate int64) hybridlimit.Limit {
					l := hybridlimit.Limit{Algorithm: c.algorithm, Rate: rate, Period: time.Hour}
					if l.Validate() != nil {
						l.Burst = rate
					}
					return l
				}
				l, err := local.New(limit(10), local.Config{Name: "api"})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				take := func() (n int64) {
					t.Helper()
					for range 100 {
						res, err := l.Allow(t.Context(), "k")
						if err != nil {
							t.Fatal(err)
						}
						n += res.Granted
					}
					return n
				}
				if n := take(); n != 10 {
					t.Fatalf("%d units of 10", n)
				}
				if err := l.SetLimit(limit(20)); err != nil {
					t.Fatal(err)
				}
				if n := take(); n != c.atOnce {
					t.Errorf("raised to 20: %d units at once, want %d", n, c.atOnce)
				}
				if err := l.Reset(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				if n := take(); n != 20 {
					t.Errorf("after Reset: %d units, want 20", n)
				}
			})
		})
	}
}
