package circuit_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/breaker"
)

// TestConcurrent runs all methods concurrently. The delivered changes must form a chain:
// each begins in the state in which the one before ended. Then no change was lost,
// doubled or delivered out of order.
func TestConcurrent(t *testing.T) {
	var changes []breaker.Change // guarded by the promise that OnChange runs one at a time
	var told atomic.Int64
	b := newBreaker(t, breaker.Config{
		OpenFor:  time.Millisecond,
		SlowCall: time.Millisecond,
		OnChange: func(c breaker.Change) { changes = append(changes, c); told.Add(1) },
	})
	const enough = 60
	results := []error{nil, nil, nil, errDown, errDown, redis.ErrNoScript}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for n := 0; n < 5000 || told.Load() < enough; n++ {
				switch n := random.IntN(1000); {
				case n < 50:
					b.RetryIn()
				default:
					if c, ok := b.Begin(); ok && random.IntN(100) > 0 { // else lost
						c.End(time.Duration(random.IntN(1100))*time.Microsecond, results[random.IntN(len(results))])
					}
				}
				b.State()
			}
		})
	}
	wg.Wait()
	state := breaker.Closed
	for i, c := range changes {
		if c.From != state || c.From == c.To {
			t.Fatalf("change %d of %d: %v, after %v", i, len(changes), c, state)
		}
		if i > 0 && c.At.Before(changes[i-1].At) {
			t.Fatalf("change %d was %v before the one before it", i, changes[i-1].At.Sub(c.At))
		}
		state = c.To
	}
	want(t, b, state)
}

func TestOneProbeAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{OpenFor: time.Second})
		open(t, b)
		time.Sleep(b.RetryIn())

		var through atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				c, ok := b.Begin()
				if !ok {
					return
				}
				through.Add(1)
				time.Sleep(50 * time.Millisecond)
				c.End(50*time.Millisecond, nil)
			})
		}
		synctest.Wait()
		want(t, b, breaker.HalfOpen)
		if n := through.Load(); n != 1 {
			t.Errorf("%d probes at once", n)
		}
		if d := b.RetryIn(); d != time.Second { // until the probe counts as lost
			t.Errorf("RetryIn = %v while the probe is out", d)
		}
		wg.Wait()
		want(t, b, breaker.Closed)
		for range 100 {
			begin(t, b)
		}
	})
}
