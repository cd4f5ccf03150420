package rlqs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/rls/internal/quotatest"
)

// counter has the slices of all Envoys.
type counter struct {
	taken, envoys int64
	needs         [3]int64
}

// place is the pool of one Envoy.
type place struct {
	*counter
	self need
}

func (c *counter) Take(n int64) int64 {
	n = min(n, allSlices-c.taken)
	c.taken += n
	return n
}

func (c *counter) Part(n int64) int64    { return n }
func (c *counter) Give(n int64)          { c.taken -= n }
func (c *counter) Most(held int64) int64 { return held }
func (c *counter) Envoys() int64         { return c.envoys }

func (p *place) Tell(n need) {
	p.needs[p.self]--
	p.needs[n]++
	p.self = n
}

func (p *place) Others() need {
	for n := starves; n > nothing; n-- {
		if p.needs[n] > 1 || p.needs[n] == 1 && p.self != n {
			return n
		}
	}
	return nothing
}

// envoy is an Envoy with its assignment.
type envoy struct {
	quotatest.Envoy
	a     assignment
	place place
	next  time.Time
}

// simulate runs a fleet of Envoys with a load, and returns the excess in seconds of the limit, and the part of what could
// be served that was.
func simulate(
	n int, perSecond float64, every, lasts time.Duration, load func(i int, at time.Duration, n int) float64, seed uint64,
) (excess, used float64) {
	const step = 20 * time.Millisecond
	rng := rand.New(rand.NewPCG(seed, 1))
	pool, began := &counter{envoys: int64(n)}, time.Unix(0, 0)
	envoys := make([]envoy, n)
	for i := range envoys {
		envoys[i].place.counter, envoys[i].Reported = pool, began
		envoys[i].next = began.Add(time.Duration(rng.Float64() * float64(every)))
	}
	m := quotatest.Meter{Limit: perSecond}
	for at := time.Duration(0); at < lasts; at += step {
		here, asked, now := 0.0, 0.0, began.Add(at)
		for i := range envoys {
			e := &envoys[i]
			passed, came := e.Pass(load(i, at, n)*perSecond*step.Seconds(), step, now)
			here, asked = here+passed, asked+came
			if now.Before(e.next) && (e.a.begun || came == 0) {
				continue
			}
			told := e.a.report(&e.place, usageOf(e.Report("", nil, now).GetBucketQuotaUsages()[0]), perSecond, now)
			if err := e.Hear(action(nil, rateOf(told, perSecond), 2*every).GetQuotaAssignmentAction(), now); err != nil {
				panic(err)
			}
			e.next = now.Add(every)
		}
		m.Add(here, asked, step, at >= 4*every)
	}
	return m.Excess, m.Use()
}

// TestAssignments compares fleets of Envoys with the bounds of docs/decisions/0079.
func TestAssignments(t *testing.T) {
	loads := []struct {
		name string
		load func(i int, at time.Duration, n int) float64
		use  float64
	}{
		{"even", func(_ int, _ time.Duration, n int) float64 { return 2 / float64(n) }, 0.9},
		{"one asks 80 %", func(i int, _ time.Duration, n int) float64 {
			if i == 0 {
				return 1.6
			}
			return 0.4 / float64(n-1)
		}, 0.7},
		{"half", func(_ int, _ time.Duration, n int) float64 { return 0.5 / float64(n) }, 0.9},
		{"one at a time", func(i int, at time.Duration, n int) float64 {
			if int(at/time.Minute)%n == i {
				return 2
			}
			return 0
		}, 0.6},
	}
	for _, l := range loads {
		for _, n := range []int{3, 20, 2000} {
			for _, every := range []time.Duration{5 * time.Second, time.Second} {
				t.Run(fmt.Sprintf("%s, %d Envoys, %v", l.name, n, every), func(t *testing.T) {
					excess, used := simulate(n, max(perSecond, 1000*float64(n/20)), every, 3*time.Minute, l.load, 1)
					if t.Logf("excess %.3f s, use %.1f %%", excess, 100*used); excess > 0.1 || used < l.use {
						t.Errorf("excess %.3f s of the limit, use %.3f", excess, used)
					}
				})
			}
		}
	}
}

// TestSmallLimits has limits of which an Envoy gets less than a request in a tenth of a second. Its bucket has one all the
// same. So each Envoy may be over by two: one that it had, and one by a change of its assignment.
func TestSmallLimits(t *testing.T) {
	for _, limit := range []float64{100, 10, 1, 0.1} {
		for _, n := range []int{1, 3, 20} {
			for name, load := range map[string]func(i int, at time.Duration, n int) float64{
				"even": func(_ int, _ time.Duration, n int) float64 { return 2 / float64(n) },
				"one at a time": func(i int, at time.Duration, n int) float64 {
					return map[bool]float64{true: 2}[int(at/time.Minute)%n == i]
				},
				"changing": func(i int, at time.Duration, n int) float64 {
					return map[bool]float64{true: 2}[int(at/(7*time.Second)+time.Duration(i))%3 == 0]
				},
			} {
				excess, used := simulate(n, limit, 5*time.Second, 20*time.Minute, load, 1)
				t.Logf("%v/s, %d Envoys, %s: excess of %.1f requests, use %.1f %%", limit, n, name, excess*limit, 100*used)
				if name == "even" && used < 0.66 { // a bucket of one token loses what comes while it is full
					t.Errorf("%v/s, %d Envoys: use %.3f", limit, n, used)
				}
				if excess*limit > 2*(0.1*limit+float64(n)) {
					t.Errorf("%v/s, %d Envoys, %s: excess of %.1f requests", limit, n, name, excess*limit)
				}
			}
		}
	}
}

// TestMovedLoad measures after what time a load is served that moves from one Envoy to another.
func TestMovedLoad(t *testing.T) {
	const every, n = 5 * time.Second, 20
	for seed := range uint64(5) {
		began := time.Minute + time.Duration(seed)*every/5
		for last, after := 0.0, time.Duration(0); ; after += every / 5 {
			_, used := simulate(n, perSecond, every, began+after, func(i int, at time.Duration, _ int) float64 {
				return map[bool]float64{true: 2}[i == map[bool]int{true: 1}[at >= began]]
			}, seed)
			served := used * (began + after - 4*every).Seconds()
			if now := (served - last) / (every / 5).Seconds(); after > 0 && now > 0.8 {
				if t.Logf("served after %v", after-every/5); after > 4*every {
					t.Errorf("seed %d: a load is served %v after it moved", seed, after)
				}
				break
			}
			last = served
		}
	}
}
