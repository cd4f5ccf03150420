package hybrid_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// tracers is a TracerProvider that keeps the spans that ended.
type tracers struct {
	noop.TracerProvider
	scope string
	mu    sync.Mutex
	ended []*span
}

type tracer struct {
	noop.Tracer
	to *tracers
}

type span struct {
	noop.Span
	to   *tracers
	name string
	kind trace.SpanKind
	// parent is the span in ctx; nil: ctx has no span of this provider.
	parent *span
	attrs  map[attribute.Key]attribute.Value
	errs   []error
	code   codes.Code
}

func (p *tracers) Tracer(scope string, _ ...trace.TracerOption) trace.Tracer {
	p.scope = scope
	return tracer{to: p}
}

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	s := &span{to: t.to, name: name, kind: cfg.SpanKind(), attrs: map[attribute.Key]attribute.Value{}}
	s.parent, _ = trace.SpanFromContext(ctx).(*span)
	for _, kv := range cfg.Attributes() {
		s.attrs[kv.Key] = kv.Value
	}
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) RecordError(err error, _ ...trace.EventOption) { s.errs = append(s.errs, err) }
func (s *span) SetStatus(c codes.Code, _ string)              { s.code = c }

func (s *span) SetAttributes(kv ...attribute.KeyValue) {
	for _, a := range kv {
		s.attrs[a.Key] = a.Value
	}
}

func (s *span) End(...trace.SpanEndOption) {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.to.ended = append(s.to.ended, s)
}

// take returns the spans that ended since the last take.
func (p *tracers) take() []*span {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.ended
	p.ended = nil
	return out
}

func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		p := &tracers{}
		l := newLimiter(t, b.Client(nil), still(1000), hybrid.Config{
			Mode: hybrid.ModeDeferred, Hub: hybrid.HubConfig{TracerProvider: p, Tags: 1},
		})
		if p.scope != "github.com/hybridlimit/hybridlimit/hybrid" {
			t.Errorf("scope %q", p.scope)
		}
		time.Sleep(2100 * time.Millisecond)
		ask(t, l, "a", 1)
		ask(t, l, "b", 1)
		cold := p.take()
		ask(t, l, "a", 1)
		ask(t, l, "b", 1)
		time.Sleep(time.Second)
		owed := p.take()
		if len(cold) != 2 || len(owed) != 1 {
			t.Fatalf("%d spans of two cold keys, then %d of one sync for both", len(cold), len(owed))
		}
		for _, s := range append(cold, owed...) {
			if s.name != "EVALSHA "+lua.Batch.SHA || s.kind != trace.SpanKindClient || len(s.errs) > 0 || s.code != codes.Unset ||
				s.attrs["db.system.name"].AsString() != "redis" ||
				s.attrs["db.operation.name"].AsString() != "EVALSHA" ||
				s.attrs["db.stored_procedure.name"].AsString() != lua.Batch.SHA ||
				s.attrs["db.namespace"].AsString() != "0" || s.attrs["server.address"].AsString() == "" || s.attrs["server.port"].AsInt64() == 0 ||
				s.attrs["error.type"].AsString() != "" {
				t.Errorf("span %+v", s)
			}
		}
		if _, ok := cold[0].attrs["db.operation.batch.size"]; ok {
			t.Error("a batch of one has a size")
		}
		if n := owed[0].attrs["db.operation.batch.size"].AsInt64(); n != 2 {
			t.Errorf("a batch of two keys has size %d", n)
		}

		b.Kill()
		ask(t, l, "a", 1)
		time.Sleep(200 * time.Millisecond)
		failed := p.take()
		if len(failed) == 0 || len(failed[0].errs) != 1 || failed[0].code != codes.Error || failed[0].attrs["error.type"].AsString() != "connection_reset" {
			t.Errorf("spans of syncs that failed: %+v", *failed[0])
		}
		b.Restart()
	})
}

// TestSpansOfExactCalls checks that the span of an exact call is a child of its caller's span and
// has the attributes of a sync's span.
func TestSpansOfExactCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := redistest.NewBubble(t), &tracers{}
		l := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Mode: hybrid.ModeExact, Hub: hybrid.HubConfig{TracerProvider: p}})
		time.Sleep(1100 * time.Millisecond)
		p.take()
		ctx, outer := p.Tracer("test").Start(t.Context(), "request")
		must(t)(l.Allow(ctx, "alice@example.com"))
		spans := p.take()
		if len(spans) != 1 || spans[0].parent != outer.(*span) || spans[0].attrs["db.system.name"].AsString() != "redis" {
			t.Fatalf("spans %+v", spans)
		}
		for k, v := range spans[0].attrs {
			if strings.Contains(v.String(), "alice") {
				t.Errorf("%s is %s: a key in an attribute", k, v.String())
			}
		}
	})
}
