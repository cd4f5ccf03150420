package circuit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
)

var errDown = errors.New("dial tcp: connection refused")

// noRatio turns FailureRatio off, so that a test of Failures tests nothing else.
const noRatio = -1

func newBreaker(t testing.TB, cfg breaker.Config) *circuit.Breaker {
	t.Helper()
	b, err := circuit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// call runs one fast call that ends with err. It fails the test if Begin returns
// false.
func call(t testing.TB, b *circuit.Breaker, err error) {
	t.Helper()
	begin(t, b).End(0, err)
}

func begin(t testing.TB, b *circuit.Breaker) circuit.Call {
	t.Helper()
	c, ok := b.Begin()
	if !ok {
		t.Fatalf("Begin = false while %v", b.State())
	}
	return c
}

func refused(t testing.TB, b *circuit.Breaker) {
	t.Helper()
	if _, ok := b.Begin(); ok {
		t.Fatalf("Begin = true, now %v", b.State())
	}
}

// open opens a closed breaker whose Failures is 3, with three failed calls.
func open(t testing.TB, b *circuit.Breaker) {
	t.Helper()
	for range 3 {
		call(t, b, errDown)
	}
	want(t, b, breaker.Open)
}

// halfOpen makes an open breaker half-open and returns the probe.
func halfOpen(t testing.TB, b *circuit.Breaker) circuit.Call {
	t.Helper()
	time.Sleep(b.RetryIn())
	want(t, b, breaker.Open)
	c := begin(t, b)
	want(t, b, breaker.HalfOpen)
	return c
}

func want(t testing.TB, b *circuit.Breaker, s breaker.State) {
	t.Helper()
	if got := b.State(); got != s {
		t.Fatalf("State = %v, want %v", got, s)
	}
}
