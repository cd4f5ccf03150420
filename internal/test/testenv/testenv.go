// Package testenv reads the settings of tests from the environment:
//
//	HYBRIDLIMIT_SEED  the seed of random tests; not set: 1, so that two runs are alike
//	HYBRIDLIMIT_FULL  set: the tests take their full form, as in make search
//	HYBRIDLIMIT_LONG  set: the tests take a form that is longer still, an hour for some
//
// This package draws no seed. make search draws one and prints it before the first test starts, so that it is known
// even if the run is killed.
//
// Package rapidseed gives the same seed to the checks of rapid.
package testenv

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
)

// defaultSeed is the seed if the environment sets none.
const defaultSeed = 1

// TB is the part of testing.TB that this package needs. rapid's TB has it too.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// ParseSeed returns HYBRIDLIMIT_SEED, or 1 if it is not set.
func ParseSeed() (uint64, error) {
	s := os.Getenv("HYBRIDLIMIT_SEED")
	if s == "" {
		return defaultSeed, nil
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("testenv: HYBRIDLIMIT_SEED: %w", err)
	}
	return seed, nil
}

// Seed returns HYBRIDLIMIT_SEED, or 1, and logs it in the form of an environment variable.
func Seed(tb TB) uint64 {
	tb.Helper()
	seed, err := ParseSeed()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Logf("HYBRIDLIMIT_SEED=%d", seed)
	return seed
}

// Rand returns a generator with Seed as its seed.
func Rand(tb TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Seed(tb), 1))
}

// Full reports whether the tests take their full form, or the long one.
func Full() bool { return os.Getenv("HYBRIDLIMIT_FULL") != "" || Long() }

// Long reports whether the tests take the long form.
func Long() bool { return os.Getenv("HYBRIDLIMIT_LONG") != "" }

// Runs returns long if the tests take the long form, else short.
func Runs(short, long int) int {
	if Long() {
		return long
	}
	return short
}
