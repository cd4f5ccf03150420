package keys

import (
	"math"
	"testing"
	"time"
)

// TestRecencyLagsByAPartOfTheTurnover checks that budgets are valid for the time in which a 64th
// of the keys come. Budgets with a longer validity end when keys come faster.
func TestRecencyLagsByAPartOfTheTurnover(t *testing.T) {
	voids := 0
	s := NewStore(6400, func() { voids++ })
	turn := &s.turnover
	now := int64(time.Hour)
	come := func(keys int, each time.Duration) {
		for range keys {
			now += int64(each)
			turn.came(now)
		}
	}
	lag := func() time.Duration { return time.Duration(turn.notedBy(now) - now) }
	if turn.notedBy(now) != math.MaxInt64 {
		t.Errorf("noted in %v though no key had to go", lag())
	}
	come(50, time.Millisecond)
	if turn.notedBy(now) != math.MaxInt64 || voids != 0 {
		t.Errorf("noted in %v, %d voids, before a step was over", lag(), voids)
	}
	come(450, time.Millisecond) // a step of 100 takes 0.1 s
	if lag() != 100*time.Millisecond || voids != 1 {
		t.Errorf("%v, %d voids: want 0.1 s and 1", lag(), voids)
	}
	now += int64(30 * time.Second) // no key came
	if lag() != 30*time.Second {
		t.Errorf("%v after half a minute of quiet", lag())
	}
	come(300, 100*time.Millisecond)
	if lag() != 10*time.Second || voids != 1 {
		t.Errorf("%v, %d voids: want 10 s and 1", lag(), voids)
	}
	come(300, time.Microsecond)
	if lag() != 0 || voids != 2 { // a step takes 0.1 ms, less than a tick
		t.Errorf("%v, %d voids: want 0 and 2", lag(), voids)
	}
}
