package reference_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/meter"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// Admissions of the reference never have an excess. One unit more than the reference would admit always has one.
func TestTheReferenceExceedsNothing(t *testing.T) {
	rng := testenv.Rand(t)
	for _, l := range []hybridlimit.Limit{
		hybridlimit.TokenBucket(7, time.Second, 9), hybridlimit.LeakyBucket(7, time.Second, 3), hybridlimit.LeakyQueue(3, time.Second, 5),
		hybridlimit.FixedWindow(9, time.Second), hybridlimit.SlidingWindow(9, time.Second), hybridlimit.SlidingLog(9, time.Second),
	} {
		for range 50 {
			ref, m, now := New(l), meter.Of(l), int64(1e12)+rng.Int64N(1e6)
			for range 60 {
				now += rng.Int64N(300_000)
				n := 1 + rng.Int64N(3)
				ref = ref.Load(now)
				// A ns is worth less than a unit. If the reference refuses, half a µs must not turn this into an admission.
				fits := ref.Fits(now, n, 0)
				if got := m.Holds(now*1000, n); got != fits {
					t.Fatalf("%v: %d units at %d: %t, want %t", l, n, now, got, fits)
				}
				if fits {
					ref.Take(now, n)
					m.Admit(now*1000, n)
				}
			}
			if e := m.Excess(); e > 1e-9 {
				t.Fatalf("%v: the reference exceeds by %v", l, e)
			}
			n := int64(1)
			for ref.Fits(now, n, 0) {
				n++
			}
			if m.Admit(now*1000, n); m.Excess() < 1e-9 {
				t.Fatalf("%v: %d units more exceed nothing", l, n)
			}
		}
	}
}
