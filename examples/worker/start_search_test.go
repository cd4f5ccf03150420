//go:build search

package main

import (
	"strings"
	"testing"
)

// TestStart runs the whole program with its stand-in for Redis, in real time.
// It does not check the counts, which depend on the machine's timers.
func TestStart(t *testing.T) {
	var out strings.Builder
	if err := start(t.Context(), &out); err != nil || strings.Count(out.String(), "calls served") != 2 {
		t.Errorf("%v; it printed:\n%s", err, out.String())
	}
}
