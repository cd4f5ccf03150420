package runner

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file decides whether keys of several tags may be in one message.

// Together reports whether they may: the client is for a single Redis, and that has not refused such a message.
func (r *Runner) Together() bool {
	switch r.client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return false
	}
	return !r.slots.Load()
}

// Apart reports whether Redis refused a message because its keys are in several cluster slots. Together is false from then on. A
// client for a single Redis may reach a cluster: through a proxy, or as one node that has all slots.
func (r *Runner) Apart(err error) bool {
	if err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
		return false
	}
	r.slots.Store(true)
	return true
}
