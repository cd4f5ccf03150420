package main

import (
	"context"
	"time"
)

// clientFaults are faults of the limiting processes.
var clientFaults = []*fault{
	{name: "client paused 4 s", strict: true, hold: 4 * time.Second, begin: pausedClient, allowed: allowance{alone: true}},
	{name: "client paused 30 s", hold: 30 * time.Second, begin: pausedClient, allowed: allowance{alone: true}, alone: true},
	{name: "client SIGKILLed", strict: true, alone: true, begin: func(_ context.Context, s *scene) (func() error, error) {
		return nil, s.clients[s.draw(len(s.clients))].kill()
	}},
}

// pausedClient freezes a client for longer than its heartbeat lives. The other
// clients then count one process fewer, and the frozen one may spend the units
// that it held once.
func pausedClient(_ context.Context, s *scene) (func() error, error) {
	c := s.clients[s.draw(len(s.clients))]
	r, err := c.tell(orderStats)
	if err != nil {
		return nil, err
	}
	s.allow(allowance{units: r.Stats.Held})
	return c.resume, c.pause()
}
