package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestLargeFleetIsPatient makes each answer 260 ms late, as a Redis does that is busy with the start of a large fleet.
// Four thousand processes are patient: their breakers stay closed. In a small fleet, such a Redis is too slow. Then
// Redis hangs. Processes notice after three time-outs, of 250 ms or N · 200 µs. No call waits for longer than MaxWait.
func TestLargeFleetIsPatient(t *testing.T) {
	t.Parallel()
	for _, others := range []int{3, 4000} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				idle := func(o *redis.Options) { o.MinIdleConns = 4 } // a new connection would take several round trips
				l := newLimiter(t, link.Client(idle), hybridlimit.PerSecond(8002), hybrid.Config{Name: "api", Mode: hybrid.ModeStrict})
				crowd(t, b, heartbeatsOf(l.Limit(), "api"), others)
				time.Sleep(4 * time.Second)
				if got := l.Stats().Fleet; got != int64(others)+1 {
					t.Fatalf("the fleet has %d processes", got)
				}
				link.Latency(130*time.Millisecond, 130*time.Millisecond)
				before := l.Hub().Stats().Failures
				for range 100 {
					ask(t, l, "k", 1)
					time.Sleep(100 * time.Millisecond)
				}
				s, failed := l.Stats(), l.Hub().Stats().Failures-before
				patient := s.Breaker == breaker.Closed && failed == 0 && s.Allowed[hybridlimit.SourceFallback] == 0
				if patient != (others > 1000) {
					t.Errorf("breaker %v, %d syncs failed, %d calls by the fallback", s.Breaker, failed, s.Allowed[hybridlimit.SourceFallback])
				}
				link.Latency(0, 0)
				for l.Stats().Breaker != breaker.Closed {
					ask(t, l, "k", 1)
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(2 * time.Second)
				link.Pause()
				defer link.Resume()
				began := time.Now()
				for l.Stats().Breaker == breaker.Closed {
					asked := time.Now()
					ask(t, l, "k", 1)
					if took := time.Since(asked); took > 40*time.Millisecond {
						t.Errorf("a call took %v", took)
					}
					time.Sleep(10 * time.Millisecond)
				}
				timeout := max(250*time.Millisecond, time.Duration(others+1)*200*time.Microsecond)
				if took := time.Since(began); took < 2*timeout || took > 3*timeout+1200*time.Millisecond {
					t.Errorf("noticed after %v that Redis hangs, with a time-out of %v", took, timeout)
				}
			})
		})
	}
}

// TestStartOfALargeFleet makes each answer 260 ms late, also those that open a connection. A process that does not know
// the size of the fleet opens its breaker. Then it is patient until Redis tells the size. FleetSize spares it that.
func TestStartOfALargeFleet(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 10_001} {
		t.Run(fmt.Sprint("FleetSize ", size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				link.Latency(130*time.Millisecond, 130*time.Millisecond)
				limit := hybridlimit.PerSecond(20_002)
				crowd(t, b, heartbeatsOf(limit, "api"), 10_000)
				l := newLimiter(t, link.Client(nil), limit, hybrid.Config{Name: "api", Mode: hybrid.ModeStrict, Hub: hybrid.HubConfig{FleetSize: size}})
				opened := false
				for range 300 {
					ask(t, l, "k", 1)
					opened = opened || l.Stats().Breaker == breaker.Open
					time.Sleep(100 * time.Millisecond)
				}
				if s := l.Stats(); opened != (size == 0) || s.Breaker != breaker.Closed || s.Fleet != 10_001 {
					t.Errorf("opened %t, now %v, in a fleet of %d", opened, s.Breaker, s.Fleet)
				}
			})
		})
	}
}

// TestPermitsAreRenewedInALargeFleet loses a heartbeat in a fleet of 8000 processes, in which a message may take 1.6 s.
// A process that holds a permit waits for a second, so that the next heartbeat is in time for its membership.
func TestPermitsAreRenewedInALargeFleet(t *testing.T) {
	t.Parallel()
	for _, holds := range []bool{false, true} {
		t.Run(fmt.Sprint("holds ", holds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				h, use := newHub(t, link.Client(nil), hybrid.HubConfig{}), func() {}
				if limit := hybridlimit.Concurrent(10_000); holds {
					l, err := h.Concurrency(limit, hybrid.ConcurrencyConfig{Name: "api"})
					if err != nil {
						t.Fatal(err)
					}
					crowd(t, b, heartbeatsOf(limit, "api"), 8000)
					acquireOnce(t, l)
					time.Sleep(learnt)
					if _, res := acquire(t, l, "k", 1); !res.Allowed {
						t.Fatalf("no permit: %+v", res)
					}
				} else {
					limit := hybridlimit.PerSecond(10_000)
					l := add(t, h, limit, hybrid.Config{Name: "api"})
					use = func() { ask(t, l, "k", 1) } // an idle process of a large fleet beats every ten seconds
					crowd(t, b, heartbeatsOf(limit, "api"), 8000)
					time.Sleep(learnt)
				}
				var beats []time.Time
				link.Script(func(_ int, cmd []string) redistest.Verdict {
					if len(cmd) > 1 && cmd[1] == lua.Fleet.SHA {
						if beats = append(beats, time.Now()); len(beats) == 1 {
							return redistest.DropReply(redistest.ThenHang)
						}
					}
					return redistest.Forward()
				})
				for range 50 {
					use()
					time.Sleep(100 * time.Millisecond)
				}
				link.Script(nil)
				if len(beats) < 2 {
					t.Fatalf("%d heartbeats", len(beats))
				}
				if between := beats[1].Sub(beats[0]); between < time.Second || between > 2*time.Second || (between < 1500*time.Millisecond) != holds {
					t.Errorf("the next heartbeat came after %v", between)
				}
			})
		})
	}
}

// crowd puts other processes into a group, which never leave it.
func crowd(t *testing.T, b *redistest.Bubble, group string, others int) {
	t.Helper()
	for i := range others {
		if _, err := b.Mini.ZAdd(group, 1e15, fmt.Sprint("p", i)); err != nil {
			t.Fatal(err)
		}
	}
}
