package runner

import (
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/wire"
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

// Apart returns wire.CrossSlot of an error. After one, Together is false.
func (r *Runner) Apart(err error) bool {
	is := wire.CrossSlot(err)
	if is {
		r.slots.Store(true)
	}
	return is
}
