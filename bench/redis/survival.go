package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// In a scan one call of ten is for a key in use. The other nine are for keys that are used only once.
const scanPer = 9

// survivalRow has the share of calls for keys in use whose key had been evicted.
type survivalRow struct {
	name      string
	cacheKeys int
	inUse     int
	missed    series[float64] // share of the calls for keys in use
}

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
func survival(ctx context.Context, rounds, keys, calls int) ([]survivalRow, error) {
	var caches []cache
	var rows []survivalRow
	plain, err := plainLRU(keys)
	if err != nil {
		return nil, err
	}
	own, err := cutOff(ctx, keys)
	if err != nil {
		return nil, err
	}
	defer own.close()
	caches = append(caches, plain, own)
	for _, c := range caches {
		rows = append(rows, survivalRow{name: c.name, cacheKeys: keys, inUse: keys / 5})
		// Fills the cache with keys of a scan, and then warms it up.
		if err := c.useAll(ctx, fresh(0, keys+keys/10)); err != nil {
			return nil, err
		}
		if _, err := scanned(ctx, c, keys/5, calls, 0); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		for i, c := range caches {
			missed, err := scanned(ctx, c, keys/5, calls, uint64(round+1))
			if err != nil {
				return nil, err
			}
			rows[i].missed = append(rows[i].missed, missed)
		}
	}
	return rows, nil
}
