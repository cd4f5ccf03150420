package main

import (
	"context"
	"time"
)

// accessFaults are faults of a Redis that runs and refuses connections or
// commands.
var accessFaults = []*fault{
	{name: "CLIENT KILL", begin: shows("stats", "total_connections_received",
		again(50*time.Millisecond, everyNode("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")))},
	{name: "maxclients reached", proof: failedSyncs, begin: func(ctx context.Context, s *scene) (func() error, error) {
		back, err := s.config(ctx, "maxclients", "2") // the runner's connection, and one more
		if err == nil {
			_, err = everyNode("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")(ctx, s)
		}
		return back, err
	}},
	{name: "AUTH changed", begin: shows("errorstats", "errorstat_NOAUTH", func(ctx context.Context, s *scene) (func() error, error) {
		back, err := s.config(ctx, "requirepass", "another")
		if err == nil {
			_, err = everyNode("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")(ctx, s)
		}
		return back, err
	})},
	{name: "ACL without EVALSHA", begin: shows("errorstats", "errorstat_NOPERM", func(ctx context.Context, s *scene) (func() error, error) {
		_, err := everyNode("ACL", "SETUSER", "default", "-evalsha", "-eval")(ctx, s)
		return func() error {
			return s.each(func(n *node) error { return n.do(ctx, "ACL", "SETUSER", "default", "+@all") })
		}, err
	})},
}
