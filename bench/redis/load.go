package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// callers is the number of goroutines that ask at once.
const callers = 64

// keyring has the keys that a caller uses in turn.
type keyring []string

func hot() []keyring {
	rings := make([]keyring, callers)
	for i := range rings {
		rings[i] = keyring{hotKey}
	}
	return rings
}

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
type counted struct {
	took             time.Duration
	decisions, fails int64
}

// flood lets all callers ask without a pause.
func flood(ctx context.Context, t target, rings []keyring, lasts time.Duration) counted {
	var stop atomic.Bool
	var sum, fails atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for _, ring := range rings {
		wg.Go(func() {
			n, bad := 0, int64(0)
			at := rand.IntN(len(ring))
			for ; !stop.Load(); n++ {
				if _, err := t.allow(ctx, ring[at]); err != nil {
					bad++
				}
				if at++; at == len(ring) {
					at = 0
				}
			}
			sum.Add(int64(n))
			fails.Add(bad)
		})
	}
	time.Sleep(lasts)
	stop.Store(true)
	wg.Wait()
	return counted{time.Since(began), sum.Load(), fails.Load()}
}

// pace lets the callers together ask perSecond times a second, and records the ns of each call.
func pace(ctx context.Context, t target, rings []keyring, perSecond int, lasts time.Duration, into *hdrhistogram.Histogram) counted {
	var mu sync.Mutex
	var sum, fails atomic.Int64
	var wg sync.WaitGroup
	every := time.Second * time.Duration(len(rings)) / time.Duration(perSecond)
	began := time.Now()
	for i, ring := range rings {
		wg.Go(func() {
			mine := newHistogram()
			at := rand.IntN(len(ring))
			next := began.Add(every * time.Duration(i) / time.Duration(len(rings)))
			for ; next.Sub(began) < lasts; next = next.Add(every) {
				time.Sleep(time.Until(next))
				from := time.Now()
				_, err := t.allow(ctx, ring[at])
				mine.RecordValue(int64(time.Since(from)))
				if err != nil {
					fails.Add(1)
				}
				sum.Add(1)
				if at++; at == len(ring) {
					at = 0
				}
			}
			mu.Lock()
			defer mu.Unlock()
			into.Merge(mine)
		})
	}
	wg.Wait()
	return counted{time.Since(began), sum.Load(), fails.Load()}
}

// oneCaller has the figures of a single caller without a pause.
type oneCaller struct {
	p50, p99  float64 // ns of a call
	perSecond float64 // decisions
	mallocs   float64 // allocations of a decision
}

// single lets one caller ask without a pause.
func single(ctx context.Context, t target, ring keyring, lasts time.Duration) (oneCaller, error) {
	took := newHistogram()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	end := began
	for i := 0; end.Sub(began) < lasts; i++ {
		from := time.Now()
		if _, err := t.allow(ctx, ring[i%len(ring)]); err != nil {
			return oneCaller{}, err
		}
		end = time.Now()
		took.RecordValue(int64(end.Sub(from)))
	}
	runtime.ReadMemStats(&after)
	n := float64(took.TotalCount())
	return oneCaller{
		p50:       float64(took.ValueAtQuantile(50)),
		p99:       float64(took.ValueAtQuantile(99)),
		perSecond: n / end.Sub(began).Seconds(),
		mallocs:   float64(after.Mallocs-before.Mallocs) / n,
	}, nil
}

// newHistogram returns a histogram for 50 ns to 10 s with three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(50, int64(10*time.Second), 3) }
