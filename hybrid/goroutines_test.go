package hybrid_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// ours returns the stacks of the goroutines that run this library's code,
// without those of tests.
func ours() (stacks []string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range strings.Split(string(buf), "\n\n") {
		for _, pkg := range []string{"/hybrid.(", "/sync.(", "/global.("} {
			if strings.Contains(g, "hybridlimit"+pkg) && !strings.Contains(g, "testing.tRunner") && !strings.Contains(g, "hybrid_test.") {
				stacks = append(stacks, g)
				break
			}
		}
	}
	return stacks
}

// TestCloseJoinsEveryGoroutine checks that every goroutine has ended when Close returns.
func TestCloseJoinsEveryGoroutine(t *testing.T) {
	for _, fault := range []string{"none", "hung", "dead"} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				h := newHub(t, link.Client(nil), hybrid.HubConfig{})
				plain := add(t, h, hybridlimit.PerSecond(1000), hybrid.Config{Name: "a"})
				exact := add(t, h, hybridlimit.PerMinute(5), hybrid.Config{Name: "b", Mode: hybrid.ModeExact})
				stop := paced(1000, 8, func() {
					for i, l := range []*hybrid.Limiter{plain, exact} {
						_, _ = l.Allow(context.Background(), fmt.Sprint("k", i))
					}
				})
				time.Sleep(3 * time.Second)
				if got := plain.Stats().Admitted; got < 50 {
					t.Errorf("%d units admitted", got)
				}
				switch fault {
				case "hung":
					link.Pause()
					defer link.Resume()
				case "dead":
					b.Kill()
				}
				time.Sleep(time.Second)
				if open := h.Stats().Breaker != breaker.Closed; open != (fault != "none") {
					t.Errorf("the breaker is %v", h.Stats().Breaker)
				}
				if len(ours()) == 0 {
					t.Fatal("no goroutine of the library runs, so the test proves nothing")
				}
				if err := h.Close(); err != nil {
					t.Error(err)
				}
				synctest.Wait() // a goroutine that has released its WaitGroup may be there for an instant
				if left := ours(); len(left) > 0 {
					t.Errorf("after Close:\n%s", strings.Join(left, "\n\n"))
				}
				stop()
				time.Sleep(2 * time.Second) // go-redis notices a closed client later
			})
		})
	}
}
