package hybrid

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// timed records the duration and the number of keys of each batch.
type timed struct {
	next ratesync.Caller
	hub  *Hub
}

// syncTimes is the part of these records that HubStats shows.
type syncTimes struct {
	calls, ops atomic.Uint64
	ns         atomic.Int64
}

// Batch runs one batch and records it.
func (t timed) Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error) {
	began := time.Now()
	reply, err := t.next.Batch(ctx, env, ops)
	took := time.Since(began)
	s := &t.hub.syncs
	s.calls.Add(1)
	s.ops.Add(uint64(len(ops)))
	s.ns.Add(int64(took))
	t.hub.metrics.synced(ctx, took, len(ops))
	if errors.Is(err, redis.ErrClosed) {
		t.hub.gone.Store(true)
	}
	return reply, err
}
