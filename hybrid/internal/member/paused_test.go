package member

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/wire"
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

// TestPausesAreToldWhole pauses keys at each moment of a heartbeat. A pause that becomes longer while a heartbeat tells it
// is told again, a shorter one is not, and one whose heartbeat has no answer is.
func TestPausesAreToldWhole(t *testing.T) {
	told := make(chan struct{}, 1)
	p := newPaused(told)
	take := func(want ...wire.Pause) {
		t.Helper()
		if _, got := p.take(0); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
	}
	hear := func() { p.heard(&wire.Beat{}, 0, 1000) }
	due := func(want bool) {
		t.Helper()
		select {
		case <-told:
			if !want {
				t.Error("a heartbeat is due")
			}
		default:
			if want {
				t.Error("no heartbeat is due")
			}
		}
	}
	p.Tell("a", 5_000_000)
	due(true)
	take(wire.Pause{At: 5000, Mark: "a"})
	p.Tell("a", 6_000_000) // in flight
	due(true)
	p.Tell("b", 7_000_000)
	hear()
	take(wire.Pause{At: 7000, Mark: "b"}, wire.Pause{At: 6000, Mark: "a"})
	due(true)
	take(wire.Pause{At: 7000, Mark: "b"}, wire.Pause{At: 6000, Mark: "a"}) // the last heartbeat had no answer
	p.Tell("a", 5_500_000)
	due(false)
	hear()
	take()
	p.Tell("b", 7_000_000)
	due(false)
	take()
	p.lost()
	take(wire.Pause{At: 7000, Mark: "b"}, wire.Pause{At: 6000, Mark: "a"})
}
