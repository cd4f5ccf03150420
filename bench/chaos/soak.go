package main

import (
	"context"
	"time"
)

// soakEvery is the interval at which a soak measures the heaps of clients.
const soakEvery = 5 * time.Second

// soakLoad is usualLoad from many goroutines, with so many keys that they take
// most of the memory.
var soakLoad = load{Goroutines: 16, Streams: append([]stream{
	{Prefix: "many", Keys: 5000, PerSecond: 400, Rate: 10, Burst: 100},
}, usualLoad.Streams...)}

// mixable returns the faults that can be mixed with others.
func mixable() (out []*fault) {
	for _, f := range allFaults() {
		if f.on == nil && !f.alone {
			out = append(out, f)
		}
	}
	return out
}

// soak plays random faults one after the other, with a few seconds in between.
// Meanwhile it measures the heaps of clients.
func (s *scene) soak(ctx context.Context) error {
	stop := repeat(soakEvery, func() {
		for _, c := range s.clients {
			if r, err := c.tell(orderBaseline); err == nil {
				c.heap = append(c.heap, r.Heap)
			}
		}
	})
	defer stop()
	for deadline := time.Now().Add(s.plan.soak); time.Now().Before(deadline); {
		f := s.plan.faults[s.draw(len(s.plan.faults))]
		if err := s.suffer(ctx, f, s.plan.hold/2+s.drawTime(s.plan.hold)); err != nil {
			return err
		}
		if err := s.world.well(ctx); err != nil {
			return err
		}
		s.sleep(time.Second + s.drawTime(3*time.Second))
	}
	return nil
}
