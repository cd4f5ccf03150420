package hybrid

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// traced gives each sync a span, by OpenTelemetry's conventions for database
// clients.
type traced struct {
	next   ratesync.Caller
	tracer trace.Tracer
	verb   string // the Redis command
	script string // what it runs
}

// newTraced returns next itself where there is no provider.
func newTraced(next ratesync.Caller, provider trace.TracerProvider, functions bool) ratesync.Caller {
	if provider == nil {
		return next
	}
	t := traced{next, provider.Tracer(scope), "EVALSHA", lua.Batch.SHA}
	if functions {
		t.verb, t.script = "FCALL", lua.Library.Batch
	}
	return t
}

// Batch runs one batch within a span.
func (t traced) Batch(ctx context.Context, env lua.Envelope, ops []lua.Op) (lua.Reply, error) {
	attrs := []attribute.KeyValue{
		attribute.String("db.system.name", "redis"),
		attribute.String("db.operation.name", t.verb),
		attribute.String("db.stored_procedure.name", t.script),
	}
	if len(ops) > 1 { // the convention: not for a batch of one
		attrs = append(attrs, attribute.Int("db.operation.batch.size", len(ops)))
	}
	ctx, span := t.tracer.Start(ctx, t.verb, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	defer span.End()
	reply, err := t.next.Batch(ctx, env, ops)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return reply, err
}
