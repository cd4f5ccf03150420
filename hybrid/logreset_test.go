package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestResetAfterOfALog checks that each answer about a log tells when its last entry ends, also beside other limits and without
// Redis. AllowAll told some µs.
func TestResetAfterOfALog(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *redistest.Bubble, mode hybrid.Mode) {
		h := newHub(t, b.Client(nil), hybrid.HubConfig{FleetSize: 1})
		log := add(t, h, hybridlimit.SlidingLog(10, time.Hour), hybrid.Config{Name: "log", Mode: mode})
		bucket := add(t, h, still(100), hybrid.Config{Name: "bucket", Mode: mode})
		time.Sleep(2300 * time.Millisecond)
		joint := func() hybridlimit.Result {
			asks := []hybridlimit.Ask{{Limiter: log, Key: "k", N: 1}, {Limiter: bucket, Key: "k", N: 1}}
			if res, err := hybridlimit.AllowAll(t.Context(), asks...); err != nil {
				t.Fatal(err)
			} else if !res.Allowed {
				return res
			}
			return asks[0].Result
		}
		charge := func() hybridlimit.Result {
			res, err := log.Charge(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		check := func(when string, res hybridlimit.Result) {
			t.Helper()
			if res.ResetAfter < time.Hour-time.Minute || res.ResetAfter > time.Hour+time.Millisecond {
				t.Errorf("%v, %s: %+v", mode, when, res)
			}
		}
		check("a call", ask(t, log, "k", 1))
		check("AllowAll", joint())
		check("Charge", charge())
		b.Kill()
		for range 3 {
			ask(t, log, "k", 1) // they open the breaker
			time.Sleep(300 * time.Millisecond)
		}
		check("a call without Redis", ask(t, log, "k", 1))
		check("AllowAll without Redis", joint())
		check("Charge without Redis", charge())
		ask(t, log, "k", 9)
		check("a denial without Redis", ask(t, log, "k", 9))
		b.Restart()
		time.Sleep(15 * time.Second)
		check("a denial", ask(t, log, "k", 9))
		check("a denial from memory", ask(t, log, "k", 9))
		check("a denial of AllowAll", joint())
	})
}
