package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestSwitchWhileWaiting checks a call that waits for Redis when the switch is set. It waits at
// most for MaxWait, and its sync is still settled.
func TestSwitchWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb, link := b.Client(nil), b.Link()
		l := newLimiter(t, link.Client(nil), still(100), hybrid.Config{Mode: hybrid.ModeStrict, MaxWait: 20 * time.Millisecond})
		time.Sleep(2 * time.Second)
		link.Latency(30*time.Millisecond, 30*time.Millisecond)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				began := time.Now()
				res := ask(t, l, fmt.Sprint("k", i%3), 1)
				if took := time.Since(began); took > 20*time.Millisecond || res.Source != hybridlimit.SourceFallback {
					t.Errorf("after %v: %+v", took, res)
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		flip(t, l, hybrid.SwitchLocalOnly)
		wg.Wait()
		time.Sleep(time.Second)
		l.ClearSwitch()
		time.Sleep(2 * time.Second)
		shutdown(t, l)
		if n := debited(t, rdb, "api", "k0", "k1", "k2"); n != balance(t, l.Stats()) || n < 10 {
			t.Errorf("Redis debited %d: %+v", n, l.Stats())
		}
	})
}

// TestSwitchesUnderLoad changes the switch under load, over a slow link, in random order. Every
// unit must be accounted for, and Redis must be told of every admitted unit.
func TestSwitchesUnderLoad(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				rdb, link := b.Client(nil), b.Link()
				l := newLimiter(t, link.Client(nil), still(1000), patient(hybrid.Config{Mode: mode}))
				time.Sleep(2300 * time.Millisecond)
				link.Latency(3*time.Millisecond, 3*time.Millisecond)
				var admitted atomic.Int64
				var wg sync.WaitGroup
				for g := range 8 {
					wg.Go(func() {
						rng := rand.New(rand.NewPCG(7, uint64(g)))
						for range 150 {
							res := ask(t, l, fmt.Sprint("k", rng.IntN(3)), 1+rng.Int64N(3))
							if res.Source != hybridlimit.SourceSwitch && !res.Shadowed {
								admitted.Add(res.Granted)
							}
							time.Sleep(time.Duration(rng.IntN(8)) * time.Millisecond)
						}
					})
				}
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(7, 99))
					for range 60 {
						if rng.IntN(4) == 0 {
							l.ClearSwitch()
						} else {
							flip(t, l, hybrid.Switch(rng.IntN(5)))
						}
						time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
					}
				})
				wg.Wait()
				l.ClearSwitch()
				time.Sleep(2 * time.Second)
				shutdown(t, l)
				s := l.Stats()
				if n := debited(t, rdb, "api", "k0", "k1", "k2"); s.Admitted != admitted.Load() || n != balance(t, s) || s.Admitted == 0 {
					t.Errorf("%d units were admitted, Redis debited %d: %+v", admitted.Load(), n, s)
				}
			})
		})
	}
}
