package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// callers is the number of goroutines that ask at once.
const callers = 64

// keyring has the keys that a caller uses in turn.
type keyring []string

func hot() []keyring { return slices.Repeat([]keyring{{hotKey}}, callers) }

// zipfKeys and zipfSkew describe the traffic of a typical API: the first of 100
// 000 keys gets one call in nine, and the last gets one in three million.
const (
	zipfKeys = 100_000
	zipfSkew = 1.1
)

func zipf() []keyring {
	names := make([]string, zipfKeys)
	for i := range names {
		names[i] = fmt.Sprintf("customer-%08d", i)
	}
	rings := make([]keyring, callers)
	for i := range rings {
		z := rand.NewZipf(rand.New(rand.NewPCG(1, uint64(i))), zipfSkew, 1, zipfKeys-1)
		rings[i] = make(keyring, 1<<15)
		for j := range rings[i] {
			rings[i][j] = names[z.Uint64()]
		}
	}
	return rings
}

// ownKeys is the number of keys of a load in which no two goroutines ask for one key at once.
const ownKeys = 5000

// own returns a part of the keys for each caller.
func own() []keyring {
	rings := make([]keyring, callers)
	for i := range ownKeys {
		at := i % callers
		rings[at] = append(rings[at], fmt.Sprintf("customer-%08d", i))
	}
	return rings
}

// counted is the result of a load.
type counted struct{ decisions, fails atomic.Int64 }

// flood lets all callers ask without a pause.
func flood(ctx context.Context, t target, rings []keyring, lasts time.Duration, c *counted) error {
	var stop atomic.Bool
	time.AfterFunc(lasts, func() { stop.Store(true) })
	return benchkit.Spread(len(rings), func(i int) error {
		ring, n, bad := rings[i], int64(0), int64(0)
		for at := rand.IntN(len(ring)); !stop.Load(); n++ {
			if _, err := t.allow(ctx, ring[at]); err != nil {
				bad++
			}
			if at++; at == len(ring) {
				at = 0
			}
		}
		c.decisions.Add(n)
		c.fails.Add(bad)
		return nil
	})
}

// pace lets the callers together ask perSecond times a second, and records the ns of each call.
func pace(
	ctx context.Context, t target, rings []keyring, perSecond int, lasts time.Duration,
	c *counted, into *hdrhistogram.Histogram,
) error {
	var mu sync.Mutex
	every := time.Second * time.Duration(len(rings)) / time.Duration(perSecond)
	began := time.Now()
	return benchkit.Spread(len(rings), func(i int) error {
		ring, mine := rings[i], newHistogram()
		at := rand.IntN(len(ring))
		next := began.Add(every * time.Duration(i) / time.Duration(len(rings)))
		for ; next.Sub(began) < lasts; next = next.Add(every) {
			time.Sleep(time.Until(next))
			from := time.Now()
			_, err := t.allow(ctx, ring[at])
			mine.RecordValue(int64(time.Since(from)))
			if err != nil {
				c.fails.Add(1)
			}
			c.decisions.Add(1)
			if at++; at == len(ring) {
				at = 0
			}
		}
		mu.Lock()
		defer mu.Unlock()
		into.Merge(mine)
		return nil
	})
}

// single lets one caller ask without a pause. It returns the ns of a call, and the decisions a second and allocations.
func single(ctx context.Context, t target, ring keyring, lasts time.Duration) (benchkit.Figures, error) {
	took := newHistogram()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	end := began
	for i := 0; end.Sub(began) < lasts; i++ {
		from := time.Now()
		if _, err := t.allow(ctx, ring[i%len(ring)]); err != nil {
			return nil, err
		}
		end = time.Now()
		took.RecordValue(int64(end.Sub(from)))
	}
	runtime.ReadMemStats(&after)
	n := float64(took.TotalCount())
	f := quantiles(took)
	f["perSecond"], f["mallocs"] = n/end.Sub(began).Seconds(), float64(after.Mallocs-before.Mallocs)/n
	return f, nil
}

// storm lets each caller ask once after SCRIPT FLUSH. Redis has lost its scripts, and each caller may send the whole
// script. It returns the cost of a call.
func storm(ctx context.Context, m benchkit.Meter, t target, rings []keyring) (benchkit.Figures, error) {
	if err := m.Redis.Admin.ScriptFlush(ctx).Err(); err != nil {
		return nil, err
	}
	took, fails := make([]time.Duration, len(rings)), make([]error, len(rings))
	var ready sync.WaitGroup
	ready.Add(len(rings))
	s, err := m.Spent(ctx, func() error {
		return benchkit.Spread(len(rings), func(i int) error {
			ready.Done()
			ready.Wait()
			from := time.Now()
			_, fails[i] = t.allow(ctx, rings[i][0])
			took[i] = time.Since(from)
			return nil
		})
	})
	n := float64(len(rings))
	f := s.Per(n)
	f["slowest"], f["fails"] = float64(slices.Max(took)), 0
	for _, err := range fails {
		if err != nil {
			f["fails"] += 1 / n
		}
	}
	return f, err
}

// quantiles returns those of the ns of calls.
func quantiles(h *hdrhistogram.Histogram) benchkit.Figures {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) }
	return benchkit.Figures{"p50": at(50), "p99": at(99), "p99.9": at(99.9), "max": float64(h.Max())}
}

// newHistogram returns a histogram for 50 ns to 10 s with three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(50, int64(10*time.Second), 3) }
