package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// This file tests the books at quiet moments: debited = admitted + held.

// TestOnlyFreeLeasesExpire stops the calls of a fleet at once. At that moment, what
// Redis has debited is admitted or held. Two seconds later no unit is held. Units have
// expired only if the key was contended: a free lease cannot be returned, and has at
// most the demand of one second.
func TestOnlyFreeLeasesExpire(t *testing.T) {
	t.Parallel()
	const processes, perSecond = 3, 100 // calls of each
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
		for _, tc := range []struct {
			rate int64
			free int64 // most units that may expire
		}{
			{rate: 1000}, // the load is far below the limit
			{rate: 400},
			{rate: 100, free: processes * perSecond},
		} {
			t.Run(fmt.Sprintf("%v %d", mode, tc.rate), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ls := fleetOf(t, processes, hybridlimit.TokenBucket(tc.rate, time.Second, 4*tc.rate), hybrid.Config{Mode: mode})
					admitted, denied := int64(0), 0
					for range 8 * perSecond {
						for _, l := range ls {
							if ask(t, l, "k", 1).Allowed {
								admitted++
							} else {
								denied++
							}
						}
						time.Sleep(time.Second / perSecond)
					}
					if contended := denied > 0; contended != (tc.free > 0) {
						t.Fatalf("%d calls were denied", denied)
					}
					check := func(when string, free int64) {
						t.Helper()
						var s hybrid.Stats
						for _, l := range ls {
							one := l.Stats()
							s.Paid, s.Granted, s.Refunded = s.Paid+one.Paid, s.Granted+one.Granted, s.Refunded+one.Refunded
							s.Held, s.Owed, s.Expired, s.Lost = s.Held+one.Held, s.Owed+one.Owed, s.Expired+one.Expired, s.Lost+one.Lost
						}
						debited := s.Paid + s.Granted - s.Refunded
						if s.Expired > free || s.Lost > 0 || s.Owed > 0 || debited != admitted+s.Held+s.Expired {
							t.Errorf("%s: %d debited, %d admitted, %d held, %d owed, %d expired, %d lost; at most %d may have expired",
								when, debited, admitted, s.Held, s.Owed, s.Expired, s.Lost, free)
						}
						if when == "at rest" && s.Held > 0 {
							t.Errorf("%s: %d held", when, s.Held)
						}
					}
					time.Sleep(60 * time.Millisecond) // T, and a round trip: nothing is owed
					check("at the end of the load", tc.free)
					time.Sleep(2 * time.Second)
					check("at rest", tc.free)
					shutdown(t, ls...)
				})
			})
		}
	}
}
