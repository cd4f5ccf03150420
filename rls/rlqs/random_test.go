package rlqs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// TestNoSliceTwice has Envoys on three replicas whose streams break, which go silent, whose answers come late or are lost,
// and whose loads change. At every moment, their assignments together are at most 98 % of the limit.
func TestNoSliceTwice(t *testing.T) {
	largest := 0.0
	for seed := range testenv.Runs(4, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { largest = max(largest, hazards(t, uint64(seed))) })
		})
	}
	if largest < 0.95*perSecond { // a test without assignments shows nothing
		t.Errorf("the Envoys had at most %.0f a second", largest)
	}
}

// hazards runs the Envoys, and returns the largest sum of their assignments, in requests a second.
func hazards(t *testing.T, seed uint64) (largest float64) {
	t.Helper()
	const envoys, lasts = 9, 3 * time.Minute
	rng := rand.New(rand.NewPCG(seed, 2))
	b := redistest.NewBubble(t)
	var all []*Service
	for range 3 {
		s, _ := replica(t, b)
		all = append(all, s)
	}
	time.Sleep(5 * time.Second)
	clients, loads := make([]client, envoys), make([]float64, envoys)
	every := []time.Duration{time.Second, 5 * time.Second}[seed%2]
	for i := range clients {
		clients[i].connect(t, all[i%3])
		clients[i].Reported = time.Now()
		clients[i].next = time.Now().Add(time.Duration(rng.Int64N(int64(every))))
	}
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		now, sum := time.Now(), 0.0
		for i := range clients {
			c := &clients[i]
			if rng.IntN(400) == 0 {
				loads[i] = []float64{0, 0.05, 0.3, 2}[rng.IntN(4)]
			}
			if c.late != nil && !now.Before(c.lateAt) {
				c.hear(t, c.late, now)
				c.late = nil
			}
			if rng.IntN(100) == 0 {
				c.one.sweep(now)
			}
			if !now.After(c.Expires) {
				sum += c.Rate
			}
			if now.Before(c.next) {
				continue
			}
			since := now.Sub(c.Reported).Seconds()
			asked := loads[i] * perSecond * since
			passed := min(asked, c.Rate*since)
			c.Allowed, c.Denied = uint64(passed), uint64(asked-passed)
			answer := c.ask(t, now)
			c.next = now.Add(every)
			switch rng.IntN(20) {
			case 0: // the answer is lost with the stream
				c.end()
				c.connect(t, all[rng.IntN(3)])
			case 1: // the answer is heard before the stream breaks
				c.hear(t, answer, now)
				c.end()
				c.connect(t, all[rng.IntN(3)])
			case 2: // it goes silent, perhaps until its assignment has expired
				c.hear(t, answer, now)
				c.next = now.Add(time.Duration(rng.Int64N(int64(20 * time.Second))))
			case 3: // the answer comes late
				late := time.Duration(rng.Int64N(int64(900 * time.Millisecond)))
				c.next = c.next.Add(late)
				c.late, c.lateAt = answer, now.Add(late)
			default:
				c.hear(t, answer, now)
			}
		}
		largest = max(largest, sum)
		if sum > assigned*perSecond {
			t.Fatalf("the Envoys may pass %.0f a second", sum)
		}
	}
	for i := range clients {
		for _, b := range clients[i].one.buckets {
			var sum int64
			for _, c := range b.share.permits {
				sum += c.n
			}
			if sum != b.held || b.told > b.held {
				t.Errorf("Envoy %d: permits of %d slices, held %d, told %d", i, sum, b.held, b.told)
			}
		}
	}
	return largest
}
