package gate_test

import (
	"fmt"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// TestRecent checks that a full cache forgets the key that was used least recently, and no other one.
func TestRecent(t *testing.T) {
	made := 0
	r := gate.NewRecent(3, func() int { made++; return made })
	var got []int
	for _, key := range []string{"a", "b", "c", "a", "d", "a", "c", "d", "b", "a"} { // d takes the place of b, and b that of a
		got = append(got, r.Of(key))
	}
	if want := "[1 2 3 1 4 1 3 4 5 6]"; fmt.Sprint(got) != want {
		t.Errorf("values %v, want %v", got, want)
	}
}
