package tell

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// tracedCaller gives each sync and each direct call a span. Spans follow OpenTelemetry's stable conventions for
// database clients and their additions for Redis: the name is the command and the stored procedure. A key is never an
// attribute. The parent of a direct call is the caller's span. A sync serves many callers and has no parent.
type tracedCaller struct {
	next   ratesync.Caller
	tracer trace.Tracer
	name   string // of spans: command and script
	attrs  []attribute.KeyValue
}

// Traced returns next itself if there is no provider.
func Traced(next ratesync.Caller, rdb redis.UniversalClient, functions bool, provider trace.TracerProvider) ratesync.Caller {
	if provider == nil {
		return next
	}
	verb, script := "EVALSHA", lua.Batch.SHA
	if functions {
		verb, script = "FCALL", lua.Library.Batch
	}
	t := tracedCaller{next: next, tracer: provider.Tracer(scope), name: verb + " " + script}
	t.attrs = append([]attribute.KeyValue{
		attribute.String("db.system.name", "redis"),
		attribute.String("db.operation.name", verb),
		attribute.String("db.stored_procedure.name", script),
	}, server(rdb)...)
	return t
}

// server returns the address attributes of a client of one server. Other clients choose a server with each call.
func server(rdb redis.UniversalClient) []attribute.KeyValue {
	c, ok := rdb.(*redis.Client)
	if !ok {
		return nil
	}
	o := c.Options()
	attrs := []attribute.KeyValue{attribute.String("db.namespace", strconv.Itoa(o.DB))}
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil { // the path of a socket
		return append(attrs, attribute.String("server.address", o.Addr))
	}
	attrs = append(attrs, attribute.String("server.address", host))
	if n, err := strconv.Atoi(port); err == nil {
		attrs = append(attrs, attribute.Int("server.port", n))
	}
	return attrs
}

// Batch runs one batch within a span.
func (t tracedCaller) Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error) {
	attrs := t.attrs[:len(t.attrs):len(t.attrs)]
	if len(ops) > 1 { // by the convention, not for a batch of one
		attrs = append(attrs, attribute.Int("db.operation.batch.size", len(ops)))
	}
	ctx, span := t.tracer.Start(ctx, t.name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	defer span.End()
	reply, err := t.next.Batch(ctx, env, ops)
	if err != nil {
		class, code := errorType(err)
		span.SetAttributes(attribute.String("error.type", class))
		if code != "" {
			span.SetAttributes(attribute.String("db.response.status_code", code))
		}
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return reply, err
}

// errorType returns a short class for an error. If the error is a reply of Redis, it also returns Redis's own code
// for it, for example "LOADING".
func errorType(err error) (class, code string) {
	var reply redis.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled", ""
	case errors.As(err, &reply):
		code, _, _ = strings.Cut(reply.Error(), " ")
		return code, code
	case errors.Is(err, wire.ErrReply):
		return "unreadable_reply", ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused", ""
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection_reset", ""
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "connection_closed", ""
	case errors.Is(err, redis.ErrPoolTimeout):
		return "pool_timeout", ""
	}
	var resolve *net.DNSError
	var waited net.Error
	switch {
	case errors.As(err, &resolve):
		return "name_resolution", ""
	case errors.As(err, &waited) && waited.Timeout():
		return "timeout", ""
	}
	return "_OTHER", ""
}

// Timed records the duration and the number of keys of each batch.
type Timed struct {
	Next    ratesync.Caller
	Times   *SyncTimes
	Metrics *Metrics
	Gone    *atomic.Bool // set when the client of Redis was closed
}

// SyncTimes is the part of these records that HubStats shows.
type SyncTimes struct {
	Calls, Ops atomic.Uint64
	Ns         atomic.Int64
}

// Batch runs one batch and records it.
func (t Timed) Batch(ctx context.Context, env wire.Envelope, ops []wire.Op) (wire.Reply, error) {
	began := time.Now()
	reply, err := t.Next.Batch(ctx, env, ops)
	took := time.Since(began)
	s := t.Times
	s.Calls.Add(1)
	s.Ops.Add(uint64(len(ops)))
	s.Ns.Add(int64(took))
	t.Metrics.synced(ctx, took, len(ops))
	if errors.Is(err, redis.ErrClosed) {
		t.Gone.Store(true)
	}
	return reply, err
}
