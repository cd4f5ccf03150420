package main

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/bench/rivals"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// nothing is the control: the loop alone, and two readings of the clock where each decision is timed.
var nothing = rivals.Rival{
	Name: "nothing", What: "the loop alone", Single: true,
	Open: func(rivals.Env) (rivals.Limiter, error) { return idle{}, nil },
}

// everyone has all rivals and the control.
var everyone = append([]rivals.Rival{nothing}, rivals.All...)

type idle struct{}

func (idle) Decide(_ context.Context, keys []string) (allowed int, err error) {
	for range keys {
		allowed++
	}
	return allowed, nil
}

func (idle) Close() error { return nil }

// slice has the durations of the parts of a turn.
type slice struct{ Warm, Timed, Single time.Duration }

// From manyKeys keys on, a turn is longer: by manyTimes, and its warm-up by warmTimes. So most keys are used in the
// warm-up. Otherwise the figures would be those of limiters that have forgotten keys or ask Redis again after a pause.
// With new keys the timed part is longer again by wholeCycles: each key is garbage soon, and the part must have whole
// cycles of the collector.
const (
	manyKeys    = 10_000
	manyTimes   = 3
	warmTimes   = 15
	wholeCycles = 5
)

// of returns the slice for a workload.
func (d slice) of(w workload) slice {
	if w.Keys < manyKeys {
		return d
	}
	many := slice{warmTimes * d.Warm, manyTimes * d.Timed, manyTimes * d.Single}
	if w.Fresh {
		many.Timed *= wholeCycles
	}
	return many
}

// figures is the result of one turn.
type figures struct {
	Calls   int64
	Allowed int64
	Took    time.Duration // wall time of all calls
	CPU     time.Duration // of the process
	Mallocs uint64
	Bytes   uint64 // allocated

	P50, P99, P999, Max int64 // ns; of single decisions
	// Meant is the share of decisions in memory by lease, by credit or by a denial that Redis has proved. It is
	// negative if the limiter does not report sources.
	Meant float64
}

// A chunk is the number of keys in one call of a limiter, between two readings of the clock: many if a decision takes
// nanoseconds, few if it takes a round trip.
const (
	maxChunk   = 256
	redisChunk = 4
)

// subject is a limiter under one workload.
type subject struct {
	limiter rivals.Limiter
	seq     []string
	chunk   int
	// fresh is the position of the next call of any goroutine in any turn, if no key may come again soon. Nil: each
	// goroutine begins at its own position in each turn.
	fresh *atomic.Int64
}

// turn measures one turn.
func (s subject) turn(ctx context.Context, goroutines int, d slice) (f figures, err error) {
	before := sources(s.limiter)
	if _, err := s.timed(ctx, goroutines, d.Warm); err != nil {
		return f, err
	}
	if f, err = s.timed(ctx, goroutines, d.Timed); err != nil {
		return f, err
	}
	hist, err := s.single(ctx, goroutines, d.Single)
	if err != nil {
		return f, err
	}
	f.P50, f.P99, f.P999 = hist.ValueAtPercentile(50), hist.ValueAtPercentile(99), hist.ValueAtPercentile(99.9)
	f.Max = hist.Max()
	f.Meant = meant(before, sources(s.limiter))
	return f, nil
}

// timed makes calls in chunks for the duration d.
func (s subject) timed(ctx context.Context, goroutines int, d time.Duration) (f figures, err error) {
	var m0, m1 runtime.MemStats
	var calls, allowed atomic.Int64
	runtime.ReadMemStats(&m0)
	spent, err := benchkit.Meter{}.Spent(ctx, func() error {
		start := time.Now()
		return benchkit.Spread(goroutines, func(g int) error {
			var made, may int64
			defer func() { calls.Add(made); allowed.Add(may) }()
			next := s.walk(g, goroutines, s.chunk)
			for made == 0 || time.Since(start) < d {
				i := next()
				n, err := s.limiter.Decide(ctx, s.seq[i:i+s.chunk])
				made, may = made+int64(s.chunk), may+int64(n)
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	runtime.ReadMemStats(&m1)
	return figures{
		Calls: calls.Load(), Allowed: allowed.Load(), Took: spent.Wall, CPU: spent.Process,
		Mallocs: m1.Mallocs - m0.Mallocs, Bytes: m1.TotalAlloc - m0.TotalAlloc,
	}, err
}

// single times each decision for the duration d. The times include one reading of the clock.
func (s subject) single(ctx context.Context, goroutines int, d time.Duration) (*hdrhistogram.Histogram, error) {
	hists := make([]*hdrhistogram.Histogram, goroutines)
	for g := range hists {
		hists[g] = hdrhistogram.New(1, int64(time.Minute), 2)
	}
	start := time.Now()
	err := benchkit.Spread(goroutines, func(g int) error {
		hist := hists[g]
		next := s.walk(g, goroutines, 1)
		for hist.TotalCount() == 0 || time.Since(start) < d {
			i := next()
			from := time.Now()
			_, err := s.limiter.Decide(ctx, s.seq[i:i+1])
			took := time.Since(from)
			if err := errors.Join(err, hist.RecordValue(max(1, int64(took)))); err != nil {
				return err
			}
		}
		return nil
	})
	for _, h := range hists[1:] {
		hists[0].Merge(h)
	}
	return hists[0], err
}

// walk returns the positions in the sequence of the next calls of a goroutine. Each stands for step calls.
func (s subject) walk(g, of, step int) (next func() int) {
	if s.fresh != nil {
		keys := int64(len(s.seq) - maxChunk)
		return func() int { return int((s.fresh.Add(int64(step)) - int64(step)) % keys) }
	}
	i := len(s.seq)/of*g/s.chunk*s.chunk - step
	return func() int {
		if i += step; i+step > len(s.seq) {
			i = 0
		}
		return i
	}
}

func sources(l rivals.Limiter) map[hybridlimit.Source]int64 {
	if s, ok := l.(rivals.Sourced); ok {
		return s.Sources()
	}
	return nil
}

func meant(before, after map[hybridlimit.Source]int64) float64 {
	if after == nil {
		return -1
	}
	var all, good int64
	for source, n := range after {
		n -= before[source]
		all += n
		switch source {
		case hybridlimit.SourceLease, hybridlimit.SourceCredit, hybridlimit.SourceDenyCache:
			good += n
		}
	}
	return float64(good) / float64(max(1, all))
}

// fill makes all keys known to a limiter, with newly allocated strings. A limiter that reports each key to Redis gets
// some 20 000 keys a second. With more than Redis can handle its breaker would open, and a key that was decided without
// Redis takes another amount of memory.
func (s subject) fill(ctx context.Context, keys int) error {
	const goroutines, atOnce = 8, 32
	_, paced := s.limiter.(rivals.Settler)
	return benchkit.Spread(goroutines, func(g int) error {
		for i := g; i < keys; i += goroutines {
			if _, err := s.limiter.Decide(ctx, []string{keyName(i)}); err != nil {
				return err
			}
			if paced && i/goroutines%atOnce == atOnce-1 {
				time.Sleep(12 * time.Millisecond)
			}
		}
		return nil
	})
}

// heap returns the bytes in use on the heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
