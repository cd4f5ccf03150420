package circuit_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
)

func TestAllocations(t *testing.T) {
	b := newBreaker(t, breaker.Config{OpenFor: time.Hour})
	check := func(what string, most float64, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, f); n > most {
			t.Errorf("%s: %v allocations, want at most %v", what, n, most)
		}
	}
	check("State", 0, func() { b.State() })
	check("Begin and End", 1, func() { // gobreaker's closure
		c, _ := b.Begin()
		c.End(0, nil)
	})
	for b.State() == breaker.Closed {
		call(t, b, errDown)
	}
	check("refused", 0, func() { b.Begin() })
	check("RetryIn", 0, func() { b.RetryIn() })
}

func BenchmarkState(b *testing.B) {
	br := newBreaker(b, breaker.Config{})
	for b.Loop() {
		if br.State() != breaker.Closed {
			b.Fatal()
		}
	}
}

func BenchmarkCall(b *testing.B) {
	br := newBreaker(b, breaker.Config{})
	b.ReportAllocs()
	for b.Loop() {
		c, _ := br.Begin()
		c.End(time.Millisecond, nil)
	}
}

func BenchmarkCallParallel(b *testing.B) {
	br := newBreaker(b, breaker.Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c, _ := br.Begin()
			c.End(time.Millisecond, nil)
		}
	})
}

func BenchmarkRefused(b *testing.B) {
	br := newBreaker(b, breaker.Config{OpenFor: 24 * time.Hour})
	open(b, br)
	b.ReportAllocs()
	for b.Loop() {
		br.Begin()
	}
}
