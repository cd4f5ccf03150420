package main

import (
	"strings"
	"testing"
)

// TestMeasure checks that the program runs and prints its table. It does not
// check the figures, which are meaningless on a busy machine.
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
