// Package testenv reads what the environment asks of tests:
//
//	HYBRIDLIMIT_SEED  the seed of random tests, to see again what failed
//	HYBRIDLIMIT_LONG  set: tests take the long way (make test-long)
package testenv

import (
	"math/rand/v2"
	"os"
	"strconv"
)

// TB is what is asked of a test; testing.TB and rapid's have it.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Seed is HYBRIDLIMIT_SEED, or drawn; it is logged as it can be given.
func Seed(tb TB) uint64 {
	tb.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("HYBRIDLIMIT_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			tb.Fatalf("testenv: HYBRIDLIMIT_SEED: %v", err)
		}
	}
	tb.Logf("HYBRIDLIMIT_SEED=%d", seed)
	return seed
}

// Rand is a generator of Seed.
func Rand(tb TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Seed(tb), 1))
}

// Long says whether tests take the long way.
func Long() bool { return os.Getenv("HYBRIDLIMIT_LONG") != "" }

// Runs is short, or long where tests take the long way.
func Runs(short, long int) int {
	if Long() {
		return long
	}
	return short
}
