//go:build search && !race

package hybrid_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// keyBytes is the most memory that a key of 20 bytes may take: its entry, and its
// places in the table and in the LRU.
const keyBytes = 450

var memoryCases = []struct {
	mode  hybrid.Mode
	limit hybridlimit.Limit
}{
	{hybrid.ModeAuto, hybridlimit.TokenBucket(100, time.Second, 100)},
	{hybrid.ModeStrict, hybridlimit.TokenBucket(100, time.Second, 100)},
	{hybrid.ModeDeferred, hybridlimit.TokenBucket(100, time.Second, 100)},
	{hybrid.ModeAuto, hybridlimit.LeakyQueue(100, time.Second, 100)},
	{hybrid.ModeAuto, hybridlimit.FixedWindow(100, time.Minute)},
	{hybrid.ModeAuto, hybridlimit.SlidingWindow(100, time.Minute)},
	{hybrid.ModeAuto, hybridlimit.SlidingLog(1, time.Minute)}, // the second call is denied; otherwise nothing is kept
}

// heldBytes returns the growth of the heap with each key that has made two calls.
func heldBytes(tb testing.TB, mode hybrid.Mode, limit hybridlimit.Limit, keys int) (perKey float64, s hybrid.Stats) {
	srv := redistest.New(tb)
	l := newLimiter(tb, srv.Client(tb), limit, hybrid.Config{
		Mode: mode, MaxKeys: keys, MaxWait: 10 * time.Second,
		// A busy machine must not open the breaker: the memory of fallback buckets
		// is another figure.
		Hub: hybrid.HubConfig{SyncTimeout: 5 * time.Second, Breaker: breaker.Config{SlowCall: time.Minute}},
	})
	if err := l.Ready(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("%020d", i)
	}
	// heap makes two calls for each name and returns the size of the heap afterwards.
	heap := func(names []string) float64 {
		var wg sync.WaitGroup
		const callers = 256
		for g := range callers {
			wg.Go(func() {
				for i := g; i < len(names); i += callers {
					for range 2 {
						if _, err := l.Allow(context.Background(), names[i]); err != nil {
							tb.Error(err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		// Within two seconds the syncs in flight end and the leases expire. A busy machine needs longer. Until then the heap shrinks.
		for least := math.Inf(1); ; {
			time.Sleep(2 * time.Second)
			s = l.Stats()
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			now := float64(m.HeapAlloc)
			if now > least-float64(s.Keys)/2 { // half a byte a key
				return min(now, least)
			}
			least = now
		}
	}
	before := heap(names[:1024]) // connections, and the memory of the limiter itself
	had := s.Keys
	perKey = (heap(names[1024:]) - before) / float64(s.Keys-had)
	runtime.KeepAlive(names)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a million keys need many syncs
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		tb.Errorf("Shutdown: %v", err)
	}
	return perKey, s
}

func TestMemoryOfAKey(t *testing.T) {
	for _, tc := range memoryCases[:testenv.Runs(1, len(memoryCases))] {
		got, s := heldBytes(t, tc.mode, tc.limit, testenv.Runs(16_384, 131_072))
		t.Logf("%v of %v: %.0f bytes a key, %d keys", tc.mode, tc.limit, got, s.Keys)
		if got > keyBytes {
			t.Errorf("%v of %v: %.0f bytes a key, want at most %d", tc.mode, tc.limit, got, keyBytes)
		}
	}
}

// BenchmarkMemory measures the bytes per key at a million keys.
func BenchmarkMemory(b *testing.B) {
	for _, tc := range memoryCases {
		b.Run(fmt.Sprintf("%v/%v", tc.mode, tc.limit.Algorithm), func(b *testing.B) {
			for range b.N {
				got, s := heldBytes(b, tc.mode, tc.limit, 1_000_000)
				b.ReportMetric(got, "B/key")
				b.ReportMetric(float64(s.Keys), "keys")
			}
		})
	}
}
