package hybrid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestRefusalsAreOfALimit checks that a denial by Redis under one limit does not hold under
// another limit. In an earlier version calls under the other limit were denied from memory
// for as long as the denial held.
func TestRefusalsAreOfALimit(t *testing.T) {
	for _, of := range []func(int64) hybridlimit.Limit{
		func(n int64) hybridlimit.Limit { return hybridlimit.LeakyQueue(n, time.Hour, n) },
		func(n int64) hybridlimit.Limit { return hybridlimit.SlidingLog(n, time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, redistest.NewBubble(t).Client(nil), of(2), hybrid.Config{})
			for _, want := range []bool{true, true, false, false} {
				if res := ask(t, l, "k", 1); res.Allowed != want {
					t.Errorf("%+v, want allowed %v", res, want)
				}
			}
			if res := must(t)(l.AllowLimit(t.Context(), "k", 1, of(3))); !res.Allowed {
				t.Errorf("under a larger limit: %+v", res)
			}
			if err := l.SetLimit(of(4)); err != nil {
				t.Fatal(err)
			}
			if res := ask(t, l, "k", 1); !res.Allowed {
				t.Errorf("after SetLimit: %+v", res)
			}
		})
	}
}
