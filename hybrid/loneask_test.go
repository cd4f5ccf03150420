package hybrid_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestLostLoneAsk loses the replies to messages without an envelope. Redis has debited
// their units once, Stats.Uncertain counts them, and each call is decided all the same.
// Messages that were not executed count there too.
func TestLostLoneAsk(t *testing.T) {
	for _, tc := range []struct {
		name    string
		verdict redistest.Verdict
		debited bool
	}{
		{"reply lost, connection closed", redistest.DropReply(redistest.ThenClose), true},
		{"reply lost, connection hangs", redistest.DropReply(redistest.ThenHang), true},
		{"request lost", redistest.DropRequest(redistest.ThenClose), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				h := newHub(t, link.Client(nil), hybrid.HubConfig{
					SyncTimeout: 80 * time.Millisecond,
					Breaker:     breaker.Config{Failures: 1 << 20, FailureRatio: -1, SlowCall: -1}, // syncs are under test
				})
				l := add(t, h, still(1000), hybrid.Config{Name: "lone", Mode: hybrid.ModeStrict, MaxWait: 10 * time.Second})
				const cost, rounds = 3, 20
				lost := 0
				link.Script(func(_ int, cmd []string) redistest.Verdict {
					if !isBare(cmd) {
						return redistest.Forward()
					}
					lost++
					return tc.verdict
				})
				var keys []string
				for r := range rounds { // within two seconds of the first message of a tag, the others of the tag have no envelope
					for j := range 2 {
						key := fmt.Sprintf("k%d-%d", r, j)
						keys = append(keys, key)
						res, err := l.AllowN(context.Background(), key, cost)
						if err != nil || !res.Allowed {
							t.Errorf("%s: %+v, %v", key, res, err)
						}
					}
				}
				s := l.Stats()
				if lost == 0 || s.Uncertain != int64(lost*cost) || s.Admitted != 2*rounds*cost || s.Granted != s.Admitted {
					t.Errorf("%d messages of %d units lost: %+v", lost, cost, s)
				}
				want := s.Granted
				if tc.debited {
					want += s.Uncertain
				}
				if got := debited(t, b.Client(nil), "lone", keys...); got != want {
					t.Errorf("Redis debited %d, want %d: granted %d, uncertain %d", got, want, s.Granted, s.Uncertain)
				}
				t.Logf("%d of %d messages lost", lost, 2*rounds)
			})
		})
	}
}

// TestAWaitingCallSendsItself checks that a call for an unknown key is in the goroutine of
// its caller while Redis decides, once the round trip is known, and that no other
// goroutine of the library waits beside it. It returns with the answer, or at MaxWait,
// although its context is cancelled before.
func TestAWaitingCallSendsItself(t *testing.T) {
	const maxWait = 20 * time.Millisecond
	for name, tc := range map[string]struct {
		latency time.Duration // one way
		itself  bool
		took    time.Duration
	}{
		"Redis near":       {time.Millisecond, true, 2 * time.Millisecond},
		"Redis far":        {4 * time.Millisecond, false, 8 * time.Millisecond}, // MaxWait is less than four round trips
		"Redis hangs":      {0, true, maxWait},
		"a cancelled call": {time.Millisecond, true, 2 * time.Millisecond},
		"an early end":     {time.Millisecond, false, 2 * time.Millisecond}, // of the context, in less than four round trips
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				l := newLimiter(t, link.Client(nil), still(100), hybrid.Config{Mode: hybrid.ModeStrict, MaxWait: maxWait})
				link.Latency(max(tc.latency, time.Millisecond), max(tc.latency, time.Millisecond))
				for range 40 { // the round trip is smoothed
					ask(t, l, "warm", 1)
					time.Sleep(3 * time.Second)
				}
				if tc.latency == 0 {
					link.Pause()
					defer link.Resume()
				}
				ctx, cancel := context.WithCancel(t.Context())
				if name == "an early end" {
					ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond)
				}
				defer cancel()
				began := time.Now()
				done := make(chan time.Duration)
				go func() {
					_, _ = l.Allow(ctx, "cold")
					done <- time.Since(began)
				}()
				synctest.Wait()
				if name == "a cancelled call" {
					cancel()
					synctest.Wait()
				}
				buf := make([]byte, 1<<20)
				stacks := string(buf[:runtime.Stack(buf, true)])
				if itself := strings.Contains(stacks, "sync.(*lane).exchange("); itself != tc.itself {
					t.Errorf("the call sends itself: %v", itself)
				}
				if other := strings.Contains(stacks, "sync.(*lane).attempt(") && !strings.Contains(stacks, "sync.(*lane).exchange("); other == tc.itself {
					t.Errorf("the goroutine of the lane sends: %v", other)
				}
				if took := <-done; took != tc.took {
					t.Errorf("returned after %v, want %v", took, tc.took)
				}
			})
		})
	}
}
