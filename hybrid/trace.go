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
}

// newTraced returns next itself where there is no provider.
func newTraced(next ratesync.Caller, provider trace.TracerProvider) ratesync.Caller {
	if provider == nil {
		return next
	}
	return traced{next, provider.Tracer(scope)}
}

// Batch runs one batch within a span.
func (t traced) Batch(ctx context.Context, env lua.Envelope, ops []lua.Op) (lua.Reply, error) {
	attrs := []attribute.KeyValue{
		attribute.String("db.system.name", "redis"),
		attribute.String("db.operation.name", "EVALSHA"),
		attribute.String("db.stored_procedure.name", lua.Batch.SHA),
	}
	if len(ops) > 1 { // the convention: not for a batch of one
		attrs = append(attrs, attribute.Int("db.operation.batch.size", len(ops)))
	}
	ctx, span := t.tracer.Start(ctx, "EVALSHA", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	defer span.End()
	reply, err := t.next.Batch(ctx, env, ops)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return reply, err
}
