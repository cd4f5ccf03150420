package main

import (
	"context"
	"errors"
	"time"
)

// networkFaults are faults of the network between clients and servers.
var networkFaults = []*fault{
	{name: "latency 100 ms ± 50", strict: true, proof: failedSyncs, begin: toxic("latency", replies, 1, map[string]int{"latency": 100, "jitter": 50})},
	{name: "connections reset", proof: failedSyncs, begin: flicker("reset_peer", requests, map[string]int{"timeout": 0})},
	{name: "replies lost after execution", strict: true, proof: seenBefore, begin: flicker("timeout", replies, map[string]int{"timeout": 20})},
	{name: "requests lost", proof: failedSyncs, begin: flicker("timeout", requests, map[string]int{"timeout": 20})},
	{name: "half-open TCP, no replies", proof: failedSyncs, begin: toxic("timeout", replies, 1, map[string]int{"timeout": 0})},
	{name: "half-open TCP, no requests", proof: failedSyncs, begin: toxic("timeout", requests, 1, map[string]int{"timeout": 0})},
	{name: "sliced into packets of 20 bytes", begin: toxic("slicer", replies, 1, map[string]int{"average_size": 20, "size_variation": 10, "delay": 100})},
}

// toxic returns a fault that adds a toxic to every proxy until it is ended.
func toxic(kind string, d direction, part float64, attributes map[string]int) func(context.Context, *scene) (func() error, error) {
	return func(_ context.Context, s *scene) (func() error, error) {
		var cures []func() error
		err := s.each(func(n *node) error {
			cure, err := n.proxy.poison(kind, d, part, attributes)
			if err == nil {
				cures = append(cures, cure)
			}
			return err
		})
		end := func() (err error) {
			for _, cure := range cures {
				err = errors.Join(err, cure())
			}
			return err
		}
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return end, nil
	}
}

// flicker returns a fault that adds a toxic to every proxy for a moment,
// repeatedly. Messages in flight at that moment are lost, and later ones
// arrive.
func flicker(kind string, d direction, attributes map[string]int) func(context.Context, *scene) (func() error, error) {
	begin := toxic(kind, d, 1, attributes)
	return again(60*time.Millisecond, func(ctx context.Context, s *scene) (func() error, error) {
		end, err := begin(ctx, s)
		if err != nil {
			return nil, err
		}
		s.sleep(30 * time.Millisecond)
		return nil, end()
	})
}
