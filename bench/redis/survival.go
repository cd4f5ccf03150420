package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// A scan: of ten calls one is for a key in use, the other nine are for keys
// that nobody has used or will use again.
const scanPer = 9

// survivalRow is how often a key in use had been forgotten when it was asked
// for.
type survivalRow struct {
	name      string
	cacheKeys int
	inUse     int
	missed    series[float64] // share of the calls for keys in use
}

// scanned asks for keys in use, by a Zipf law, amid a scan, and returns the
// share of those that were not there any more. A hybrid limiter does not say
// which keys it evicts, but how many: when it is full each key that comes in
// puts one out, and those of the scan come in once.
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

// survival holds what a hybrid limiter forgets of keys in use against
// golang-lru of the same size, in interleaved rounds of the same calls.
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
		// Full of a scan, and then warm.
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
