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
// thousand processes are patient: their breakers stay closed. In a small fleet, such a Redis is too slow.
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
