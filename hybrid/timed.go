package hybrid

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// timed records how long each batch takes, and how many keys it has.
type timed struct {
	next     ratesync.Caller
	duration metric.Float64Histogram
	batch    metric.Int64Histogram
}

// timed returns next itself where nobody takes metrics.
func (m *metrics) timed(next ratesync.Caller) ratesync.Caller {
	if m.duration == nil {
		return next
	}
	return timed{next, m.duration, m.batch}
}

// Batch runs one batch and records it.
func (t timed) Batch(ctx context.Context, env lua.Envelope, ops []lua.Op) (lua.Reply, error) {
	began := time.Now()
	reply, err := t.next.Batch(ctx, env, ops)
	t.duration.Record(ctx, time.Since(began).Seconds())
	t.batch.Record(ctx, int64(len(ops)))
	return reply, err
}
