//go:build search

package hybrid_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// canary measures the delay that this machine adds to any wait. It sleeps for 1 ms
// again and again, and records by how much it overslept.
type canary struct {
	mu    sync.Mutex
	naps  []nap
	close func()
}

type nap struct {
	from, to time.Time
	over     time.Duration
}

func newCanary(t *testing.T) *canary {
	c := &canary{}
	done := make(chan struct{})
	var wg sync.WaitGroup
	// Several of them, since the machine may keep one thread waiting while another runs.
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			timer := time.NewTimer(0)
			defer timer.Stop()
			for {
				from := time.Now()
				timer.Reset(time.Millisecond)
				select {
				case <-done:
					return
				case <-timer.C:
				}
				c.mu.Lock()
				to := time.Now() // under the lock: naps are in the order of their ends
				c.naps = append(c.naps, nap{from, to, to.Sub(from) - time.Millisecond})
				c.mu.Unlock()
			}
		})
	}
	c.close = sync.OnceFunc(func() { close(done); wg.Wait() })
	t.Cleanup(c.close)
	return c
}

// noise returns the longest oversleep of all naps that overlap the interval.
func (c *canary) noise(from, to time.Time) (most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, _ := slices.BinarySearchFunc(c.naps, from, func(n nap, at time.Time) int { return n.to.Compare(at) })
	for _, n := range c.naps[first:] {
		if n.from.After(to.Add(time.Second)) {
			break // they are in the order of their ends; no nap that began before to is expected to end so late
		}
		if !n.from.After(to) {
			most = max(most, n.over)
		}
	}
	return most
}

// decision is one call, as its caller saw it.
type decision struct {
	limiter    int
	key        string
	begin, end time.Time
	res        hybridlimit.Result
	err        error
}

// journal keeps decisions.
type journal struct {
	mu  sync.Mutex
	all []decision
}

func (j *journal) add(d decision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, d)
}

// between returns the decisions that began and ended in the interval.
func (j *journal) between(from, to time.Time) (out []decision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range j.all {
		if !d.begin.Before(from) && !d.end.After(to) {
			out = append(out, d)
		}
	}
	return out
}

// punctual checks that no call failed, and that no call took longer than most plus twice the noise of the canary. Twice,
// because a waiting call is delayed at two points: when it is woken, and when it takes the lock of its key, whose holder waits
// for a core too. The canary is delayed only once.
func (j *journal) punctual(t *testing.T, c *canary, most time.Duration) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var worst, beyond time.Duration
	c.close() // the last nap is over
	for _, d := range j.all {
		if d.err != nil {
			t.Errorf("limiter %d, key %s: %v", d.limiter, d.key, d.err)
		}
		took := d.end.Sub(d.begin)
		worst = max(worst, took)
		if took <= most/2 {
			continue // the call did not wait
		}
		noise := 2 * c.noise(d.begin, d.end)
		beyond = max(beyond, took-noise)
		if took-noise > most {
			t.Errorf("limiter %d, key %s: a call took %v (twice the canary's worst nap is %v), want at most %v beyond that: %+v",
				d.limiter, d.key, took, noise, most, d.res)
		}
	}
	t.Logf("%d calls, the slowest took %v, and %v beyond the canary's worst nap meanwhile", len(j.all), worst, beyond)
}

// quantile returns the q-quantile of the durations of decisions.
func quantile(ds []decision, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	took := make([]time.Duration, len(ds))
	for i, d := range ds {
		took[i] = d.end.Sub(d.begin)
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}
