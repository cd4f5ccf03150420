package shed_test

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/shed"
)

// dependency gives the duration of a call that begins at this time.
type dependency func(at time.Duration) time.Duration

// flaps is a dependency whose calls take each in the slow part of a period, and
// fastCall in the well part.
func flaps(slow, well, each time.Duration) dependency {
	return func(at time.Duration) time.Duration {
		if at%(slow+well) < slow {
			return each
		}
		return fastCall
	}
}

// after30 is a dependency whose calls take slowCall for 30 s, and then as next says.
func after30(next dependency) dependency {
	return func(at time.Duration) time.Duration {
		if at < 30*time.Second {
			return slowCall
		}
		return next(at)
	}
}

// ramp is a dependency that slows evenly to slowCall within a minute, and is well
// again half a minute later.
func ramp(at time.Duration) time.Duration {
	if at > 90*time.Second {
		return fastCall
	}
	return fastCall + time.Duration(float64(slowCall-fastCall)*min(1, at.Minutes()))
}

// TestEachClassIsServedWhilePlacesAreFree runs dependencies that are slow for a while
// and well again. It looks at the calls that come while more than half of the places
// are free, whatever was before. Nearly all of them are served, in each class. After
// an outage of many seconds the lowest class comes back within seconds.
func TestEachClassIsServedWhilePlacesAreFree(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name  string
		on    dependency
		rates []float64     // calls a second by class, the most important first; nil: rates
		most  int           // MaxInFlight; 0: 40
		from  time.Duration // the time from which calls count; 0: 30 s
		least float64       // the part of each class that is served; 0: 0.99
		limit int           // the lowest limit; 0: 35
	}{
		{name: "half a second slow, 1 well", on: flaps(second/2, second, second)},
		{name: "half a second of 300 ms, 1 well", on: flaps(second/2, second, 300*time.Millisecond), from: 3 * time.Minute},
		{name: "1 s slow, 1 well", on: flaps(second, second, second)},
		{name: "1 s slow, 2 well", on: flaps(second, 2*second, second)},
		{name: "1 s slow, 2 well, 30 places", on: flaps(second, 2*second, second), most: 30, limit: 25},
		{name: "1 s of 300 ms, 2 well", on: flaps(second, 2*second, 300*time.Millisecond)},
		{name: "2 s slow, 5 well", on: flaps(2*second, 5*second, second)},
		{name: "3 s slow, 3 well", on: flaps(3*second, 3*second, second), from: 2 * time.Minute},
		{name: "200 ms slow, 200 ms well", on: flaps(second/5, second/5, second/5), least: 0.85},
		{name: "200 ms of 300 ms, 800 ms well", on: flaps(second/5, 4*second/5, 300*time.Millisecond)},
		{name: "10 s dead, 10 well", on: flaps(10*second, 10*second, second), least: 0.85},
		{name: "20 s dead, 10 well", on: flaps(20*second, 10*second, second), least: 0.5, limit: 25},
		{name: "a spike of 100 ms", on: flaps(second/10, 15*second, second)},
		{name: "2 classes", on: flaps(second, 2*second, second), rates: []float64{50, 450}},
		{name: "6 classes", on: flaps(second, 2*second, second), rates: []float64{10, 40, 50, 100, 100, 200}},
		{
			name: "a tenth of the load", on: flaps(3*second, 3*second, second),
			rates: []float64{1, 9, 15, 25}, most: 10, limit: 8,
		},
		{name: "5 times the load", on: flaps(second/2, second, second), rates: []float64{50, 450, 750, 1250}},
		{name: "an outage, then half a second slow", on: after30(flaps(second/2, second, second)), from: 75 * second},
		{name: "an outage, then 3 s slow", on: after30(flaps(3*second, 3*second, second)), from: 60 * second},
		{name: "an outage, then well", on: after30(flaps(0, second, 0)), from: 38 * second},
		{name: "a slow ramp, then well", on: ramp, from: 98 * second, limit: 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.rates == nil {
				c.rates = rates
			}
			least, limit := cmp.Or(c.least, 0.99), cmp.Or(c.limit, 35)
			synctest.Test(t, func(t *testing.T) {
				served, lowest, share := beside(t, c.on, c.rates, cmp.Or(c.most, 40), cmp.Or(c.from, 30*second))
				for class, part := range served {
					if part < least {
						t.Errorf("class %d: %.1f %% of the calls beside free places are served, want %.0f",
							class, 100*part, 100*least)
					}
				}
				if lowest < limit {
					t.Errorf("the limit falls to %d, want %d at least", lowest, limit)
				}
				t.Logf("served %.3f, limit %d at least, share %.2f at most", served, lowest, share)
			})
		})
	}
}

// beside runs a load until half a minute after from. It returns the served part of the
// calls after from that come beside free places, by class, the lowest limit, and the
// highest share.
func beside(t *testing.T, on dependency, rates []float64, most int, from time.Duration) (
	served []float64, lowest int, share float64,
) {
	names := []string{"1", "2", "3", "4", "5", "6"}[:len(rates)]
	s := shedder(t, shed.Config{
		Classes: names, Healthy: 50 * time.Millisecond, MaxInFlight: most, Logger: slog.New(slog.DiscardHandler),
	})
	begin, end := time.Now(), from+30*time.Second
	came, ok := make([]int, len(rates)), make([]int, len(rates))
	lowest = most
	var all sync.WaitGroup
	var mu sync.Mutex
	for class, rate := range rates {
		rng := rand.New(rand.NewPCG(1, uint64(class)))
		all.Go(func() {
			for {
				time.Sleep(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
				at := time.Since(begin)
				if at >= end {
					return
				}
				now := s.Stats()
				counts := at >= from && 2*now.InFlight < now.Limit
				all.Go(func() {
					permit, res, err := s.Acquire(t.Context(), names[class])
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					if at >= from {
						lowest, share = min(lowest, now.Limit), max(share, now.Share)
					}
					if counts {
						came[class]++
						if res.Allowed {
							ok[class]++
						}
					}
					mu.Unlock()
					if res.Allowed {
						time.Sleep(on(time.Since(begin)))
						permit.Release()
					}
				})
			}
		})
	}
	all.Wait()
	for class := range rates {
		served = append(served, float64(ok[class])/float64(came[class]))
	}
	return served, lowest, share
}
