package hybrid_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// withAndWithout has the two ways to run the library, for tests of both. A
// bubble has only scripts, because miniredis has no functions.
var withAndWithout = map[string]bool{"scripts": false, "functions": true}

// TestHubAfterFunctionFlushes flushes the library while it is in use. No fallback
// may decide, the breaker must stay closed, and each unit must count exactly
// once.
func TestHubAfterFunctionFlushes(t *testing.T) {
	srv := redistest.New(t)
	direct := srv.Client(t)
	redistest.NeedFunctions(t, direct)
	cfg := patient(hybrid.Config{SyncEvery: 20, SyncInterval: 5 * time.Millisecond})
	cfg.Hub.Functions = true
	cfg.Hub.Breaker = breaker.Config{Failures: 1, FailureRatio: -1, SlowCall: -1}
	l := newLimiter(t, srv.Client(t), still(100_000), cfg)
	keys := keysOf("k", 20)
	calls := 0
	stop := paced(2000, 1, func() {
		calls++
		if _, err := l.Allow(context.Background(), keys[calls%len(keys)]); err != nil {
			t.Error(err)
		}
	})
	for flushes := 0; flushes < 50 || redistest.Calls(t, direct)["function|load"] < 5 && flushes < 5000; flushes++ {
		redistest.Do(t, direct, "FUNCTION", "FLUSH")
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	shutdown(t, l)
	s := l.Stats()
	if n := s.Allowed[hybridlimit.SourceFallback] + s.Denied[hybridlimit.SourceFallback]; n > 0 || s.Breaker != breaker.Closed {
		t.Errorf("%d fallback decisions, breaker %v", n, s.Breaker)
	}
	if got := debited(t, direct, "api", keys...); !explained(t, got, s) || s.Owed != 0 || s.Admitted == 0 {
		t.Errorf("Redis debited %d: %+v", got, s)
	}
	ran := redistest.Calls(t, direct)
	if ran["function|load"] < 5 || ran["evalsha"] > 0 {
		t.Errorf("loaded %d times, %d EVALSHA, %d EVAL", ran["function|load"], ran["evalsha"], ran["eval"])
	}
}

// TestNoFunctions checks that a Redis without functions counts as one that does
// not answer, and that the log names the cause. miniredis has no functions.
func TestNoFunctions(t *testing.T) {
	log := newCapture()
	l := newLimiter(t, redistest.Client(t, redistest.Mini(t).Addr()), still(1000), hybrid.Config{
		Hub: hybrid.HubConfig{Functions: true, Logger: slog.New(log), Breaker: breaker.Config{OpenFor: time.Minute}},
	})
	redistest.Eventually(t, 30*time.Second, "the fallback decides", func() bool {
		return ask(t, l, "k", 1).Source == hybridlimit.SourceFallback && l.Stats().Breaker == breaker.Open
	})
	lines := strings.Join(log.all(), "\n")
	if n := strings.Count(lines, "Config.Functions needs Redis 7 or newer"); n != 1 {
		t.Errorf("the log names the cause %d times, want once:\n%s", n, lines)
	}
}

// TestSpansOfFunctions checks that a span names the function that was called.
func TestSpansOfFunctions(t *testing.T) {
	srv := redistest.New(t)
	redistest.NeedFunctions(t, srv.Client(t))
	p := &tracers{}
	cfg := patient(hybrid.Config{})
	cfg.Hub.Functions, cfg.Hub.TracerProvider = true, p
	ask(t, newLimiter(t, srv.Client(t), still(1000), cfg), "k", 1)
	spans := p.take()
	if len(spans) == 0 {
		t.Fatal("no spans")
	}
	for _, s := range spans {
		if s.name != "FCALL "+lua.Library.Batch || s.kind != trace.SpanKindClient || s.attrs["db.operation.name"].AsString() != "FCALL" ||
			s.attrs["db.stored_procedure.name"].AsString() != lua.Library.Batch {
			t.Errorf("span %+v", s)
		}
	}
}
