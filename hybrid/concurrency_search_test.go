//go:build search

package hybrid_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/neighbours"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestCallsInABadWorld plays random calls and random events in a fleet: outages, wipes, restarts of a process, Reset, switches and
// other modes. More calls than permits never run, without those of the fallback. No call waits for longer than it may, and at the end
// all permits can be had again.
func TestCallsInABadWorld(t *testing.T) {
	t.Parallel()
	inPairs(t, 6, func(t *testing.T, rng *rand.Rand) {
		b := redistest.NewBubble(t)
		limit, procs, patience := 1+rng.Int64N(12), 1+rng.IntN(4), time.Duration(rng.IntN(3))*150*time.Millisecond
		cfg := hybrid.ConcurrencyConfig{MaxWait: patience}
		if rng.IntN(3) == 0 {
			cfg.Mode = hybrid.ModeExact
		}
		fleet := make([]*hybrid.ConcurrencyLimiter, procs)
		beside, crowded := make([]*neighbours.Set, procs), rng.IntN(3) == 0
		start := func(i int) {
			fleet[i] = concurrency(t, b.Client(nil), hybridlimit.Concurrent(limit), cfg)
			if !crowded {
				return
			}
			var err error
			if beside[i], err = neighbours.Add(fleet[i].Hub(), rng.Uint64()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range fleet {
			start(i)
		}
		keys := []string{"k", "l", "m"}[:1+rng.IntN(3)]
		calls := map[string]*inFlight{}
		for _, key := range keys {
			calls[key] = &inFlight{}
		}
		call := func(l *hybrid.ConcurrencyLimiter, key string, n int64, lasts, gives time.Duration) {
			ctx, cancel := context.WithTimeout(context.Background(), gives)
			defer cancel()
			began := time.Now()
			p, res, err := l.AcquireN(ctx, key, n)
			if took := time.Since(began); took > max(patience, 250*time.Millisecond)+time.Millisecond {
				t.Errorf("a call waited %v", took)
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, hybridlimit.ErrClosed) {
				t.Error(err)
			}
			if err != nil || !res.Allowed {
				return
			}
			counts := !res.Shadowed && (res.Source == hybridlimit.SourceLease || res.Source == hybridlimit.SourceRedis)
			if counts {
				calls[key].begin(n)
			}
			time.Sleep(lasts)
			if counts {
				calls[key].end(n)
			}
			p.Release()
		}
		var all sync.WaitGroup
		down := false
		for range 1500 {
			time.Sleep(time.Duration(rng.ExpFloat64() * 2e7))
			i, key, n := rng.IntN(procs), keys[rng.IntN(len(keys))], 1+rng.Int64N(min(limit, 3))
			lasts, gives := time.Duration(rng.ExpFloat64()*1e8), time.Duration(1+rng.IntN(2000))*time.Millisecond
			if rng.IntN(40) == 0 {
				lasts *= 50
			}
			l := fleet[i]
			all.Go(func() { call(l, key, n, lasts, gives) })
			if beside[i] != nil {
				all.Go(beside[i].Call)
			}
			switch rng.IntN(150) {
			case 0:
				if down {
					b.Restart()
				} else {
					b.Kill()
				}
				down = !down
			case 1:
				b.Mini.FlushAll()
			case 2:
				_ = l.Reset(t.Context(), key) // it may fail while Redis is down
			case 3:
				if err := l.SetSwitch(hybrid.Switch(rng.IntN(3))); err != nil {
					t.Error(err)
				}
			case 4:
				l.ClearSwitch()
			case 5: // a deploy
				go func() { _ = l.Hub().Shutdown(context.Background()) }()
				start(i)
			}
		}
		if down {
			b.Restart()
		}
		all.Wait() // the longest of thousands of calls takes most of a minute
		time.Sleep(40 * time.Second)
		for _, l := range fleet {
			l.ClearSwitch()
		}
		for _, key := range keys {
			if most, _ := calls[key].counts(); most > limit {
				t.Errorf("%d permits in use of %d", most, limit)
			}
			for i, l := range fleet {
				if l.Running(key) != 0 {
					t.Errorf("process %d: %d permits of ended calls", i, l.Running(key))
				}
			}
			redistest.Eventually(t, 20*time.Second, "all permits can be had again", func() bool {
				p, res, err := fleet[0].AcquireN(t.Context(), key, limit)
				p.Release()
				return err == nil && res.Allowed
			})
		}
		time.Sleep(20 * time.Second)
		for i, l := range fleet {
			if s := l.Stats(); s.Held != 0 || s.Waiting != 0 || s.Keys != 0 {
				t.Errorf("process %d: %+v", i, s)
			}
			if beside[i] != nil {
				beside[i].Land()
				if r := beside[i].Report(); len(r.Violated) > 0 || r.Refused > 0 {
					t.Errorf("process %d, neighbours: %d ops refused, %q", i, r.Refused, r.Violated)
				}
			}
		}
		synctest.Wait()
	})
}
