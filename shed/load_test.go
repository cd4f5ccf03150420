package shed_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/shed"
)

// The incident: a worker with a pool of 32 connections to a dependency, and a load of
// 500 calls a second in four classes. The dependency slows from 10 ms to 1 s. Then
// the worker can do 32 calls a second, and the calls of the first class alone are
// 10 a second.
//
// Critical calls meet the slow dependency too, so no shedder can serve them in 1.5
// times 10 ms. A shedder can keep them out of queues. Hence "their normal p99" is
// the p99 of critical calls that have the worker for themselves, with the same
// dependency at the same time: "critical alone" in the table. A call counts as
// served if it took at most 1.5 times that, all waits included.
const (
	poolSize = 32
	places   = 20 // MaxInFlight: the pool less the critical calls of a second, with room for their variance
	warm     = 30 * time.Second
	slow     = 30 * time.Second
	after    = 45 * time.Second
	fastCall = 10 * time.Millisecond
	slowCall = time.Second
)

var (
	classes = []string{"critical", "write", "read", "test"}
	rates   = []float64{10, 90, 150, 250} // calls a second
)

// admit asks a guard for one call. nil: the call is refused.
type admit func(ctx context.Context, class string) (release func())

// outcome is one call.
type outcome struct {
	class  int
	at     time.Duration // since the begin
	served bool
	took   time.Duration
}

// incident runs the load against a guard in virtual time. The dependency's time is
// slowed between warm and warm+slow, by the factor slowdown.
type incident struct {
	rates    []float64
	slowdown float64
	slow     time.Duration
	after    time.Duration
	seed     uint64
}

// run returns the calls in the order of their arrival. each is called once per
// virtual second.
func (in incident) run(guard admit, each func(at time.Duration)) []outcome {
	pool := make(chan struct{}, poolSize) // first come, first served
	begin := time.Now()
	var all sync.WaitGroup
	calls := make([][]*outcome, len(in.rates))
	end := warm + in.slow + in.after
	for class, rate := range in.rates {
		rng := rand.New(rand.NewPCG(in.seed, uint64(class)))
		all.Go(func() {
			for {
				if rate == 0 {
					return
				}
				time.Sleep(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
				at := time.Since(begin)
				if at >= end {
					return
				}
				o, spread := &outcome{class: class, at: at}, 0.8+0.4*rng.Float64()
				calls[class] = append(calls[class], o)
				all.Go(func() {
					release := guard(context.Background(), classes[class])
					if release == nil {
						return
					}
					defer release()
					pool <- struct{}{}
					took := time.Duration(float64(fastCall) * spread)
					if at := time.Since(begin); at >= warm && at < warm+in.slow {
						took = time.Duration(float64(took) * in.slowdown)
					}
					time.Sleep(took)
					<-pool
					o.served, o.took = true, time.Since(begin)-o.at
				})
			}
		})
	}
	if each != nil {
		all.Go(func() {
			for at := time.Second; at < end; at += time.Second {
				time.Sleep(time.Second)
				each(at)
			}
		})
	}
	all.Wait()
	var flat []outcome
	for _, class := range calls {
		for _, o := range class {
			flat = append(flat, *o)
		}
	}
	slices.SortFunc(flat, func(a, b outcome) int { return int(a.at - b.at) })
	return flat
}

// part returns the part of the calls of a class, or of all with -1, between two
// times that good accepts.
func part(all []outcome, class int, from, to time.Duration, good func(outcome) bool) float64 {
	n, ok := 0, 0
	for _, o := range all {
		if (class < 0 || o.class == class) && o.at >= from && o.at < to {
			n++
			if good(o) {
				ok++
			}
		}
	}
	return float64(ok) / float64(n)
}

func served(o outcome) bool { return o.served }

func within(most time.Duration) func(outcome) bool {
	return func(o outcome) bool { return o.served && o.took <= most }
}

// p99 returns the 99th percentile of the times of a class between two times. Calls
// that were not served count as never ended.
func p99(all []outcome, class int, from, to time.Duration) time.Duration {
	var took []time.Duration
	for _, o := range all {
		if o.class == class && o.at >= from && o.at < to {
			if !o.served {
				o.took = math.MaxInt64
			}
			took = append(took, o.took)
		}
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// newShedder returns the shedder of the incident.
func newShedder(t *testing.T) *shed.Shedder {
	t.Helper()
	s, err := shed.New(shed.Config{Classes: classes, Healthy: 50 * time.Millisecond, MaxInFlight: places})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// shedding returns the guard of a shedder.
func shedding(s hybridlimit.Shedder) admit {
	return func(ctx context.Context, class string) func() {
		permit, res, _ := s.Acquire(ctx, class)
		if !res.Allowed {
			return nil
		}
		return permit.Release
	}
}

// open is no guard.
func open(context.Context, string) func() { return func() {} }

// fixed returns a guard that refuses calls of any class beyond n.
func fixed(n int) admit {
	free := make(chan struct{}, n)
	return func(context.Context, string) func() {
		select {
		case free <- struct{}{}:
			return func() { <-free }
		default:
			return nil
		}
	}
}
