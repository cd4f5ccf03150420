package main

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// classLoad has one key with two classes. The critical calls are 60 % of the rate: steady
// ones, and two spikes of 12 calls a second in each process. All spikes at once are less than
// the floor. The rest asks for four times the rate. In an outage the critical
// calls use up more than a share of the burst, so a second share for them would break its bound.
var classLoad = load{
	Goroutines: 2,
	Classes:    []hybrid.Class{{Name: "rest", Floor: 0.2}},
	Streams: []stream{
		{Prefix: "shop", Keys: 1, PerSecond: 176, Rate: 1000, Burst: 400},
		{Prefix: "shop", Keys: 1, PerSecond: 24, Rate: 1000, Burst: 400, AtOnce: 12},
		{Prefix: "shop", Keys: 1, PerSecond: 1300, Rate: 1000, Burst: 400, Class: "rest"},
	},
}

// classFaults are outages of a limiter with classes.
var classFaults = []*fault{
	{
		name: "critical reserve, SIGKILL of Redis", load: &classLoad, hold: 1500 * time.Millisecond, alone: true, proof: failedSyncs,
		begin: killed(func(n *node) error { return n.Restart() }),
	},
	{
		name: "critical reserve, SIGKILL of Redis, then of a client", load: &classLoad, mode: hybrid.ModeStrict, hold: time.Second, alone: true,
		proof: failedSyncs, begin: func(_ context.Context, s *scene) (func() error, error) {
			n := s.world.nodes[0]
			n.Kill()
			s.sleep(500 * time.Millisecond)
			return n.Restart, s.clients[s.draw(len(s.clients))].kill()
		},
	},
}
