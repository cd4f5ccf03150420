package main

import (
	"testing"
	"time"
)

// TestPauseIsChecked has a pause from 0.5 s to 3.5 s that the fleet hears after a second. A unit later in it is a
// violation, and so is a pause that does not end.
func TestPauseIsChecked(t *testing.T) {
	const at = second / 2
	for name, tc := range map[string]struct {
		from, to int64 // nothing is admitted
		unit     int64 // but this one; 0: none
		broken   bool
	}{
		"sound":         {at + second, at + 3*second, 0, false},
		"late":          {at + second, at + 3*second, at + 2*second, true},
		"just too late": {at + second + second/5, at + 3*second, 0, true},
		"for ever":      {at + second, 9 * second, 0, true},
	} {
		e := sound()
		for i := range e.clients {
			for j := range e.clients[i].history {
				r := &e.clients[i].history[j]
				if r.kind == recordDecision && r.begin >= tc.from && r.begin < tc.to {
					r.allowed, r.units = false, 0
				}
			}
		}
		if tc.unit > 0 {
			decisionAt(e, tc.unit).allowed = true
		}
		v := &verdict{figures: &figures{}}
		e.paused = at
		v.checkPause(e)
		if got := len(v.Broken) > 0; got != tc.broken {
			t.Errorf("%s: %v, the last unit after %v", name, v.Broken, v.Paused)
		}
		if !tc.broken && v.Paused > time.Second {
			t.Errorf("%s: the last unit after %v", name, v.Paused)
		}
	}
}
