package main

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/spend"
)

// This file has the faults in which a client pauses the first key of the fleet, and their check.

const brokePause = "pause"

const pausedFor = 3 * time.Second

// pausedWithin is the time after which no process admits a unit of a paused key.
var pausedWithin = within{1100 * time.Millisecond, 2 * time.Second}

// pauseFaults are faults of a fleet that has just heard of a pause: who knows it tells the others again.
var pauseFaults = []*fault{
	{name: "a key is paused", strict: true, alone: true, begin: pausedKey(nil)},
	{name: "a key is paused, FLUSHALL", alone: true, proof: resynced, allowed: forgets, begin: pausedKey(everyNode("FLUSHALL"))},
	{
		name: "a key is paused, SIGKILL, restart with data", alone: true, hold: 1200 * time.Millisecond, proof: failedSyncs,
		begin: pausedKey(onFirst(kill, restart)),
	},
}

// pausedKey pauses the first key at a client, and begins another fault when the fleet knows.
func pausedKey(then act) act {
	return func(ctx context.Context, s *scene) (func() error, error) {
		at := s.clock.now()
		if _, err := s.anyClient().tell(orderPause); err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.paused = at
		s.mu.Unlock()
		if then == nil {
			return nil, nil
		}
		s.sleep(pausedWithin.idle)
		return then(ctx, s)
	}
}

// pause pauses the first key of the first stream.
func (w *worker) pause() error {
	return spend.Pause(context.Background(), w.limiter, w.spec.Load.Streams[0].key(0), time.Now().Add(pausedFor))
}

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
