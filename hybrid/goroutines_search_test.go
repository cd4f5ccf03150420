//go:build search

package hybrid_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestCloseJoinsEveryGoroutineOnRedis checks on a real server that every goroutine has ended when Close
// returns. A goroutine that has just released its WaitGroup may still be
// visible for an instant, so the test looks again before it fails.
func TestCloseJoinsEveryGoroutineOnRedis(t *testing.T) {
	for _, fault := range []string{"none", "hung", "dead"} {
		t.Run(fault, func(t *testing.T) {
			if left := ours(); len(left) > 0 {
				t.Fatalf("before the test:\n%s", strings.Join(left, "\n\n"))
			}
			srv := redistest.New(t)
			proxy := redistest.NewProxy(t, srv.Addr())
			h := newHub(t, proxy.Client(t), hybrid.HubConfig{})
			a := add(t, h, hybridlimit.PerSecond(1000), hybrid.Config{Name: "a"})
			b := add(t, h, hybridlimit.PerMinute(5), hybrid.Config{Name: "b", Mode: hybrid.ModeExact})
			stop := paced(1000, 8, func() {
				for i, l := range []*hybrid.Limiter{a, b} {
					_, _ = l.Allow(context.Background(), fmt.Sprint("k", i))
				}
			})
			redistest.Eventually(t, 10*time.Second, "decisions", func() bool { return a.Stats().Admitted > 50 })
			switch fault {
			case "hung":
				proxy.Pause()
			case "dead":
				srv.Kill()
			}
			if fault != "none" {
				redistest.Eventually(t, 10*time.Second, "the breaker opens", func() bool { return h.Stats().Breaker != 0 })
			}
			if len(ours()) == 0 {
				t.Fatal("no goroutine of the library runs, so the test proves nothing")
			}
			start := time.Now()
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			took := time.Since(start)
			stop()
			for deadline := time.Now().Add(100 * time.Millisecond); ; runtime.Gosched() {
				left := ours()
				if len(left) == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("after Close:\n%s", strings.Join(left, "\n\n"))
				}
			}
			t.Logf("Close took %v", took)
		})
	}
}
