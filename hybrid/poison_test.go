package hybrid_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const (
	lineRefuses = "WARN hybridlimit: Redis refuses the syncs of a slot"
	lineTakes   = "WARN hybridlimit: Redis applies the syncs of a slot again"
	lineRenamed = "WARN hybridlimit: another program or process uses this process's identity"
)

// poison overwrites all envelopes, so that every batch of their processes seems older than
// the last one. It returns the number of envelopes.
func poison(t *testing.T, rdb *redis.Client) (n int) {
	t.Helper()
	it := rdb.Scan(t.Context(), 0, "*@env*", 1000).Iterator()
	for it.Next(t.Context()) {
		text := fmt.Sprintf("1e1000000 %d ", time.Now().UnixMicro())
		if err := rdb.Set(t.Context(), it.Val(), text, 10*time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPoisonedEnvelopes overwrites the envelopes of a process several times. The process
// must continue under other identities and keep to the limit, and the fleet must count it
// as one process.
func TestPoisonedEnvelopes(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rdb := redistest.NewBubble(t).Client(nil)
				log := newCapture()
				const burst, rate = 100, 10
				cfg := hybrid.Config{Mode: mode, MaxWait: time.Second, Hub: hybrid.HubConfig{Logger: slog.New(log), SyncTimeout: 5 * time.Second, Breaker: breaker.Config{Failures: 1 << 20, FailureRatio: -1, SlowCall: -1}}}
				l := newLimiter(t, rdb, hybridlimit.TokenBucket(rate, time.Second, burst), cfg)
				ready(t, l)
				began := time.Now()
				var got int64
				spend := func(until time.Time) (units int64) {
					for time.Now().Before(until) {
						units += ask(t, l, "k", 1).Granted
						time.Sleep(time.Millisecond)
					}
					got += units
					return units
				}
				spend(began.Add(500 * time.Millisecond))
				fleet := heartbeatsOf(l.Limit(), "api")
				before := rdb.ZRange(t.Context(), fleet, 0, -1).Val()
				// The process may write over an envelope before it notices.
				for i := 0; i < 5 || l.Hub().Stats().Renamed < 3 && i < 15; i++ {
					if poison(t, rdb) == 0 {
						t.Fatal("there is no envelope")
					}
					spend(time.Now().Add(300 * time.Millisecond))
				}
				after := spend(time.Now().Add(5 * time.Second)) // in a fleet of two its turn comes each two seconds
				s, took := l.Stats(), time.Since(began).Seconds()
				most := burst + rate*took + float64(s.Dropped) + 1
				t.Logf("%d units in %.1f s, %d in the last; %d dropped, %+v", got, took, after, s.Dropped, l.Hub().Stats())
				if float64(got) > most || after < 5*rate/2 {
					t.Errorf("%d units in %.1f s, want at most %.0f; %d in the last five seconds", got, took, most, after)
				}
				if n := l.Hub().Stats().Renamed; n < 3 || n > 20 || s.Dropped > 0 {
					t.Errorf("%d identities were given up, %d units dropped", n, s.Dropped)
				}
				redistest.Eventually(t, 30*time.Second, "the fleet knows the process by its new identity alone", func() bool {
					now := rdb.ZRange(t.Context(), fleet, 0, -1).Val()
					return len(now) == 1 && !slices.Contains(before, now[0]) && l.Stats().Fleet == 1
				})
				if lines := log.all(); !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, lineRenamed) }) {
					t.Errorf("the new identity is not logged: %q", lines)
				}
				shutdown(t, l)
				if n := debited(t, rdb, "api", "k"); n != balance(t, l.Stats()) {
					t.Errorf("Redis debited %d, the process knows of %d", n, balance(t, l.Stats()))
				}
			})
		})
	}
}

// TestRefusedAgainAndAgain lets Redis refuse every batch. The units of refused batches stay
// subtracted from the credit, so the process admits its limit only once. After three
// refusals in a row it decides as without Redis, until Redis applies a batch without units.
func TestRefusedAgainAndAgain(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeDeferred} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				log := newCapture()
				cfg := patient(hybrid.Config{Mode: mode, Overshoot: overshoot(mode)})
				cfg.MaxWait = 20 * time.Millisecond
				cfg.Hub.Logger = slog.New(log)
				const burst = 100
				l := newLimiter(t, b.Client(nil), still(burst), cfg)
				time.Sleep(3 * time.Second)
				got := ask(t, l, "k", 1).Granted
				time.Sleep(time.Second)
				b.Mini.SetError("HLBATCH unreadable op 1")
				for range 2000 {
					got += ask(t, l, "k", 1).Granted
					time.Sleep(5 * time.Millisecond)
				}
				s := l.Stats()
				if got > burst || s.Dropped == 0 || s.Breaker != breaker.Open {
					t.Errorf("%d of %d units were admitted; %d dropped, breaker %v", got, burst, s.Dropped, s.Breaker)
				}
				if i, err := l.Inspect(t.Context(), "k"); err != nil || i.Breaker != "open" || !strings.Contains(i.Sentence, "Redis refuses the syncs of the key's slot") {
					t.Errorf("%+v, %v", i, err)
				}
				if res := ask(t, l, "k", 1); res.Source != hybridlimit.SourceFallback {
					t.Errorf("%+v", res)
				}
				b.Mini.SetError("")
				time.Sleep(2 * time.Second)
				if res := ask(t, l, "fresh", 1); !res.Allowed || l.Stats().Breaker != breaker.Closed {
					t.Errorf("afterwards: %+v, breaker %v", res, l.Stats().Breaker)
				}
				var refuses, takes int
				for _, line := range log.all() {
					if strings.HasPrefix(line, lineRefuses) {
						refuses++
					} else if strings.HasPrefix(line, lineTakes) {
						takes++
					}
				}
				if refuses == 0 || takes == 0 || refuses > 16 {
					t.Errorf("%d lines of the refusals, %d of their end: %q", refuses, takes, log.all())
				}
				shutdown(t, l)
				balance(t, l.Stats())
			})
		})
	}
}
