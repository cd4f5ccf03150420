//go:build search

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestQuickstart runs the whole program with real processes. Its phases are as
// short as possible: a lease lasts up to a second, and the fleet needs most of a
// second to recover.
func TestQuickstart(t *testing.T) {
	var out bytes.Buffer
	err := demonstrate(t.Context(), &out, 3*time.Second)
	if err != nil || strings.Count(out.String(), "✓") != 3 {
		t.Errorf("%v; it printed:\n%s", err, &out)
	}
}
