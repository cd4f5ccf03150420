package main

import (
	"context"
	"strings"
	"time"
)

// watchTTL checks the keys of every server at intervals until the returned
// function is called. That function checks once more, and returns the keys of
// the limiter that had no TTL. A server that does not answer is skipped: the
// ledger checks every write as well.
func (s *scene) watchTTL(ctx context.Context) func() []string {
	var eternal []string
	look := func() {
		for _, n := range s.world.nodes {
			eternal = append(eternal, n.eternal(ctx)...)
		}
	}
	stop := repeat(500*time.Millisecond, look)
	return func() []string {
		stop()
		look()
		return eternal
	}
}

// eternal returns the limiter's keys without a TTL.
func (n *node) eternal(ctx context.Context) (out []string) {
	one, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	keys := n.admin.Scan(one, 0, "hl:*", 1000).Iterator()
	for keys.Next(one) {
		key := keys.Val()
		if ttl, err := n.admin.PTTL(one, key).Result(); err == nil && ttl == -1 && strings.HasPrefix(key, "hl:") {
			out = append(out, key)
		}
	}
	return out
}
