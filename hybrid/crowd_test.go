package hybrid_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestLargeFleetIsPatient makes each answer half a second late, as a Redis does that is busy with the start of a large fleet. Four
// thousand processes are patient: their breakers stay closed. In a small fleet, such a Redis is too slow. Then Redis hangs.
// Processes notice after three time-outs, of 250 ms or N · 200 µs. No call waits for longer than MaxWait.
func TestLargeFleetIsPatient(t *testing.T) {
	t.Parallel()
	for _, others := range []int{3, 4000} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				l := newLimiter(t, link.Client(nil), hybridlimit.PerSecond(8002), hybrid.Config{Name: "api", Mode: hybrid.ModeStrict})
				group := heartbeatsOf(l.Limit(), "api")
				for i := range others {
					if _, err := b.Mini.ZAdd(group, 1e15, fmt.Sprint("p", i)); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(4 * time.Second)
				if got := l.Stats().Fleet; got != int64(others)+1 {
					t.Fatalf("the fleet has %d processes", got)
				}
				link.Latency(250*time.Millisecond, 250*time.Millisecond)
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

// TestStartOfALargeFleet makes each answer 600 ms late from the start, and nobody has told the size of the fleet. The breaker
// opens. Then the process is patient until Redis tells the size.
func TestStartOfALargeFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		link.Latency(600*time.Millisecond, 600*time.Millisecond)
		limit := hybridlimit.PerSecond(16002)
		for i := range 8000 {
			if _, err := b.Mini.ZAdd(heartbeatsOf(limit, "api"), 1e15, fmt.Sprint("p", i)); err != nil {
				t.Fatal(err)
			}
		}
		l := newLimiter(t, link.Client(nil), limit, hybrid.Config{Name: "api", Mode: hybrid.ModeStrict})
		opened := false
		for range 300 {
			ask(t, l, "k", 1)
			opened = opened || l.Stats().Breaker == breaker.Open
			time.Sleep(100 * time.Millisecond)
		}
		if s := l.Stats(); !opened || s.Breaker != breaker.Closed || s.Fleet != 8001 {
			t.Errorf("opened %t, now %v, in a fleet of %d", opened, s.Breaker, s.Fleet)
		}
	})
}
