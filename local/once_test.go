package local

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// TestNoGoroutines checks that a limiter needs no Close: a bubble fails if a goroutine
// remains.
func TestNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(hybridlimit.PerSecond(1), Config{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			_, _ = l.Allow(context.Background(), fmt.Sprint(i))
		}
		time.Sleep(time.Hour)
		if n := l.Len(); n != 1000 { // without a call nothing is freed
			t.Errorf("%d keys after an hour without a call", n)
		}
		// The limiter is not closed.
	})
}

func TestNoAllocations(t *testing.T) {
	ctx := context.Background()
	eachAlgorithm(t, 100, time.Hour, func(t *testing.T, limit hybridlimit.Limit) {
		l := must(t, limit, Config{Name: "n"})
		if n := testing.AllocsPerRun(200, func() { // half of them are denied
			_, _ = l.Allow(ctx, "k")
			_, _ = l.Peek(ctx, "k")
			_, _ = l.AllowAtMost(ctx, "k", 1)
			_, _ = l.Charge(ctx, "k", 1)
			_, _ = l.Refund(ctx, "k", 1)
		}); n != 0 { // a log grows on average by less than one
			t.Errorf("%v allocations for a key that is held, want 0", n)
		}
	})
}
