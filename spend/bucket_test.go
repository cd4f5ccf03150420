package spend_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestABusyBucketTakesUnitsBack has a call of two seconds in a bucket that other calls keep empty. What the call does
// not use can be taken by others: a bucket does not know which of its units have refilled. Cancel has another rule.
func TestABusyBucketTakesUnitsBack(t *testing.T) {
	for name, make := range worlds {
		if name == "hybrid deferred" { // admits on credit, so that an empty bucket does not show
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := make(t, hybridlimit.PerSecond(100))
				if w.link != nil {
					w.link.Latency(0, 0) // so that all tries have their time
				}
				s := begin(t, ask(w.limiter, 40))
				drain := func(d time.Duration) (admitted int64) {
					for range d / (10 * time.Millisecond) {
						time.Sleep(10 * time.Millisecond)
						for range 5 {
							res, err := w.limiter.AllowN(t.Context(), "k", 1)
							if err != nil {
								t.Fatal(err)
							}
							admitted += res.Granted
						}
					}
					return admitted
				}
				drain(2 * time.Second)
				if _, err := s.Use(t.Context(), 0, 10); err != nil {
					t.Error(err)
				}
				if err := s.Settle(t.Context()); err != nil {
					t.Error(err)
				}
				if got := drain(time.Second); got < 126 || got > 134 {
					t.Errorf("%d units in the second after Settle, want 100 and the 30 that came back", got)
				}
				if got := drain(time.Second); got > 104 {
					t.Errorf("%d units in the next second, want 100", got)
				}
			})
		})
	}
}

// TestReturnedLeasesPayADebt has a process that holds leased units, while another one charges more than is left. The
// leased units go back unspent, and the debt is what was told of.
func TestReturnedLeasesPayADebt(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict} {
		synctest.Test(t, func(t *testing.T) {
			limit := hybridlimit.TokenBucket(1, 24*time.Hour, 100)
			b := redistest.NewBubble(t)
			both := fleet(t, b, 2, limit, hybrid.Config{Mode: mode, MaxWait: time.Second})
			var told int64
			for ; both[0].Stats().Held < 5 && told < 60; told++ {
				begin(t, ask(both[0], 1))
				time.Sleep(10 * time.Millisecond)
			}
			held := both[0].Stats().Held
			if held == 0 {
				t.Fatalf("%v: no units are leased", mode)
			}
			s := begin(t, ask(both[1], 1))
			if _, err := s.Use(t.Context(), 0, 120-told); err != nil { // 20 units more than there are
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
			k, err := exact(t, b, limit).Inspect(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			var ended int64
			for _, l := range both {
				ended += l.Stats().Held + l.Stats().Expired + l.Stats().Lost
			}
			if got := limit.BurstSize() - k.Left + k.Debt - ended; got != 120 {
				t.Errorf("%v: %d units are used beside %d of leases, and 120 were told of: %d were leased", mode, got, ended, held)
			}
		})
	}
}
