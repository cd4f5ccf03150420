package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
)

// In a scan one call of ten is for a key in use. The other nine are for keys that are used only once.
const scanPer = 9

// scanned asks for keys in use, by Zipf's law, during a scan, and returns the share of these calls whose key had been
// evicted. A hybrid limiter reports the number of evicted keys, not their names. When it is full, each key that comes
// in evicts one, and a key of the scan comes in once. So the evictions beyond the keys of the scan are those of keys in
// use.
func scanned(ctx context.Context, c cache, inUse, calls int, seed uint64) (missed float64, err error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	z := rand.NewZipf(rng, zipfSkew, 1, uint64(inUse-1))
	names := make([]string, inUse)
	for i := range names {
		names[i] = "in-use-" + strconv.Itoa(i)
	}
	var before, scans, hits uint64
	if c.stats != nil {
		s := c.stats()
		before = s.Evicted + s.Refused
	}
	for i := range calls {
		hit, err := c.use(ctx, names[z.Uint64()])
		if err != nil {
			return 0, err
		}
		if hit {
			hits++
		}
		for j := range scanPer {
			if _, err := c.use(ctx, fmt.Sprintf("scan-%d-%d-%d", seed, i, j)); err != nil {
				return 0, err
			}
			scans++
		}
	}
	if c.stats == nil {
		return 1 - float64(hits)/float64(calls), nil
	}
	s := c.stats()
	return float64(int64(s.Evicted+s.Refused-before-scans)) / float64(calls), nil
}

// survival compares the keys in use that a hybrid limiter evicts with those that a golang-lru of the same size evicts,
// in interleaved rounds of the same calls.
func (r *results) survival(ctx context.Context, _ *benchkit.Redis) error {
	keys, inUse, calls := r.scale.survivalKeys, r.scale.inUse(), r.scale.survivalCalls
	plain, err := plainLRU(keys)
	if err != nil {
		return err
	}
	own, err := cutOff(ctx, keys)
	if err != nil {
		return err
	}
	defer own.close()
	caches := []cache{plain, own}
	for _, c := range caches {
		// Fills the cache with keys of a scan. Round -1 warms it up.
		if err := c.useAll(ctx, fresh(0, keys+keys/10)); err != nil {
			return err
		}
	}
	return benchkit.Turns(-1, r.scale.rounds, len(caches), func(round, i int) error {
		missed, err := scanned(ctx, caches[i], inUse, calls, uint64(round+1))
		if round >= 0 && err == nil {
			r.Add("survival", "", caches[i].name, benchkit.Figures{"missed": missed})
		}
		return err
	})
}

// inUse is the number of keys in use during a scan.
func (s scale) inUse() int { return s.survivalKeys / 5 }
