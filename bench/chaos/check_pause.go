package main

import "time"

const brokePause = "pause"

// pausedFor is the length of a pause.
const pausedFor = 3 * time.Second

// pausedWithin is the time after which no process admits a unit of a paused key.
var pausedWithin = within{1100 * time.Millisecond, 2 * time.Second}

// checkPause checks that the fleet admits nothing of a paused key, and admits again when the pause is over.
func (v *verdict) checkPause(e *evidence) {
	if e.paused == 0 {
		return
	}
	var last, first time.Duration // since the pause: the last unit in it, and the first one after it
	for _, r := range e.of(recordDecision) {
		since := time.Duration(r.begin - e.paused)
		switch {
		case r.stream != 0 || r.key != 0 || !r.allowed || since < 0:
		case since < pausedFor:
			last = max(last, since)
		case first == 0 || since < first:
			first = since
		}
	}
	v.Paused = last
	most := pausedWithin.on(e.cpu)
	v.want(last <= most, brokePause, "a unit was admitted %v after the pause, want none after %v", last, most)
	v.want(first > 0 && first <= pausedFor+comesBack.on(e.cpu), brokePause,
		"the first unit was admitted %v after the pause, which was %v long", first, pausedFor)
}
