package circuit_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
)

// TestFarIsNotSlow checks that a Redis that is far away opens no breaker by new connections, that a Redis that is always slow does,
// and that one that was near and becomes slow does.
func TestFarIsNotSlow(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name  string
		took  []time.Duration
		opens bool
	}{
		{"far, with new connections", []time.Duration{90 * ms, 270 * ms, 270 * ms, 360 * ms, 270 * ms}, false},
		{"far, and slow", []time.Duration{90 * ms, 400 * ms, 400 * ms, 400 * ms}, true},
		{"always slow", []time.Duration{150 * ms, 150 * ms, 150 * ms}, true},
		{"near by a coarse clock, then far, then slow", []time.Duration{0, 60 * ms, 200 * ms, 200 * ms, 200 * ms}, true},
		{"near, then slow", []time.Duration{ms, 110 * ms, 110 * ms, 110 * ms}, true},
	} {
		b, err := circuit.New(breaker.Config{OpenFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, took := range tc.took {
			if c, ok := b.Begin(); ok {
				c.End(took, nil)
			}
		}
		if opened := b.State() == breaker.Open; opened != tc.opens {
			t.Errorf("%s: opened %t", tc.name, opened)
		}
	}
}
