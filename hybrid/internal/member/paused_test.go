package member

import (
	"fmt"
	"testing"
)

// TestPausesInMemoryAreBounded keeps the pauses that end last.
func TestPausesInMemoryAreBounded(t *testing.T) {
	p := newPaused(make(chan struct{}, 1))
	for i := range int64(MostPaused) {
		if !p.Tell(fmt.Sprint(i), 1000+i) {
			t.Fatalf("pause %d is not known", i)
		}
	}
	if p.Tell("sooner", 999) || p.Until("sooner") != 0 {
		t.Error("a pause that ends before all others is known")
	}
	if !p.Tell("later", 1_000_000) || p.Until("later") != 1_000_000 || p.Until("0") != 0 || p.Until("1") != 1001 {
		t.Errorf("later: %d, the first two: %d, %d", p.Until("later"), p.Until("0"), p.Until("1"))
	}
	if p.take(2_000_000); p.Any() {
		t.Error("pauses that are over are known")
	}
}
