package main

import (
	"strings"
	"testing"
)

// The program runs, measures what it says, and prints it. What it measures on a
// busy machine is no matter for a test.
func TestMeasure(t *testing.T) {
	var out strings.Builder
	if _, err := measure(&out, 5, 50); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bare handler", "limited by address", "allocs"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}
