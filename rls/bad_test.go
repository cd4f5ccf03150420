package rls

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// A request that cannot be decided is refused, and the text of the error has no values of
// the request.
func TestBadRequests(t *testing.T) {
	s := newService(t, modeRules, Options{MaxDescriptors: 3})
	long := strings.Repeat("secret", maxValue)
	for name, req := range map[string]*pb.RateLimitRequest{
		"empty":             {},
		"nil":               nil,
		"domain":            request("", desc("user", "a")),
		"long domain":       request(long, desc("user", "a")),
		"no descriptors":    request("shop"),
		"descriptors":       request("shop", desc(), desc(), desc(), desc()),
		"entries":           request("shop", desc("user", "a", "user", "a", "user", "a", "user", "a")),
		"long key":          request("shop", desc("user", "a"), desc(long, "a")),
		"long value":        request("shop", desc("user", "a"), desc("user", long)),
		"unit":              request("shop", given(desc("user", "secret"), 1, typev3.RateLimitUnit_UNKNOWN, 0)),
		"unit of no number": request("shop", given(desc("user", "secret"), 1, 99, 0)),
		"multiplier":        request("shop", given(desc("user", "secret"), 1, typev3.RateLimitUnit_YEAR, 1<<31)),
	} {
		_, err := s.ShouldRateLimit(context.Background(), req)
		if status.Code(err) != codes.InvalidArgument || strings.Contains(err.Error(), "secret") || len(err.Error()) > 200 {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	if got := s.metrics.serviceErrors.Load(); got != 12 {
		t.Errorf("%d errors are counted", got)
	}
	if got := ask(t, s, request("shop", desc("user", "a"))); got != "ok: ok(1)" {
		t.Errorf("a refused request has taken units: %s", got)
	}
}

// These requests are odd, but have an answer.
func TestOddRequests(t *testing.T) {
	s := newService(t, modeRules, Options{})
	long := strings.Repeat("x", maxValue)
	for name, c := range map[string]step{
		"no entries":     to("ok: ok", desc()),
		"nil descriptor": to("ok: ok", nil),
		"nil entry":      to("ok: ok", &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{nil}}),
		"empty value":    to("ok: ok(1)", desc("user", "")),
		"long value":     to("ok: ok(1)", desc("user", long)),
		"long override":  to("ok: ok(1)", given(desc("user", long), 2, daily, 0)),
		"NUL":            to("ok: ok(1)", desc("user", "\x00")),
		"no UTF-8":       to("ok: ok(1)", desc("user", "\xff")),
		"deep":           to("ok: ok", desc("user", "a", "user", "b")),
		"nothing back":   to("ok: ok(2)", back(desc("user", "new"), 0)),
	} {
		if got := ask(t, s, c.req); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	// Long values that differ at their end have counts of their own.
	if got := ask(t, s, request("shop", desc("user", long[1:]+"y"))); got != "ok: ok(1)" {
		t.Error(got)
	}
}

func TestNewIsRefused(t *testing.T) {
	if _, err := New(nil, Options{MaxDescriptors: -1, LimitHeader: "a b", ResetHeader: "\n"}); err == nil || strings.Count(err.Error(), "must ") != 3 || !strings.Contains(err.Error(), "hub") {
		t.Error(err)
	}
}

// Many descriptors are decided together.
func TestManyDescriptors(t *testing.T) {
	s := newService(t, modeRules, Options{})
	req := request("shop")
	for i := range 200 {
		req.Descriptors = append(req.Descriptors, desc("user", fmt.Sprint(i)))
	}
	for i, want := range []string{"ok: ok(1)", "ok: ok(0)", "over: over(0)"} {
		if got := ask(t, s, req); !strings.HasPrefix(got, want) || strings.Count(got, " ") != 200 {
			t.Errorf("request %d: %.50s", i, got)
		}
	}
	for len(req.Descriptors) < 1000 {
		req.Descriptors = append(req.Descriptors, desc("unknown", "a"), desc("zero", "a"))
	}
	if got := ask(t, s, req); !strings.HasPrefix(got, "over: over(0)") || strings.Count(got, " ") != 1000 {
		t.Errorf("%.50s", got)
	}
	req.Descriptors = append(req.Descriptors, desc("user", "a"))
	if _, err := s.ShouldRateLimit(context.Background(), req); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// Without a Redis, at the start or later, the answers are those of the share.
func TestWithoutRedis(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want []string
	}{
		{"share", Options{}, []string{"ok", "ok", "over"}},
		{"allow", Options{Limiter: hybrid.Config{Fallback: hybrid.FallbackAllowAll}}, []string{"ok", "ok", "ok"}},
		{"deny", Options{Limiter: hybrid.Config{Fallback: hybrid.FallbackDenyAll}}, []string{"over", "over", "over"}},
		{"error", Options{FailError: true}, []string{"rpc error: code = Unavailable", "rpc error: code = Unavailable", "rpc error: code = Unavailable"}},
	} {
		t.Run("at the start, "+c.name, func(t *testing.T) {
			c.o.Limiter.MaxWait = 20 * time.Millisecond
			s := newServiceAt(t, "127.0.0.1:1", modeRules, c.o)
			alone(t, s)
			for i, want := range c.want {
				if got := ask(t, s, request("shop", desc("user", "a"))); !strings.HasPrefix(got, want) {
					t.Errorf("request %d: %s, want %s", i, got, want)
				}
			}
			// Verbs that ask Redis have an answer too.
			for name, d := range map[string]*ratelimit.RateLimitDescriptor{
				"look": hits(desc("user", "new"), 0), "give back": back(desc("user", "new2"), 1), "override": given(desc("user", "b"), 1, daily, 0),
			} {
				want := c.want[0]
				if name == "give back" {
					want = "ok" // it asks for nothing
				}
				if got := ask(t, s, request("shop", d)); !strings.HasPrefix(got, want) {
					t.Errorf("%s: %s, want %s", name, got, want)
				}
			}
		})
	}
	t.Run("later", func(t *testing.T) {
		server := redistest.New(t)
		s := newServiceAt(t, server.Addr(), modeRules, Options{Limiter: hybrid.Config{MaxWait: 20 * time.Millisecond}})
		ready(t, s)
		if got := ask(t, s, request("shop", desc("many", "a"))); !strings.HasPrefix(got, "ok: ok(") {
			t.Fatal(got)
		}
		server.Kill()
		admitted := 0
		for i := range 40 {
			switch got := ask(t, s, request("shop", desc("many", fmt.Sprint("new", i%2)))); {
			case strings.HasPrefix(got, "ok: ok("):
				admitted++
			case !strings.HasPrefix(got, "over: over("):
				t.Fatalf("request %d: %s", i, got)
			}
		}
		if admitted == 0 || admitted > 20 {
			t.Errorf("%d of 40 calls for two keys of 10 were admitted", admitted)
		}
	})
}

// alone waits until the hub has given up its Redis.
func alone(t *testing.T, s *Service) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "the breaker is open", func() bool {
		ask(t, s, request("shop", desc("many", fmt.Sprint(time.Now().UnixNano()))))
		l, err := s.limiters.get(kind{domain: "shop", algorithm: hybridlimit.AlgFixedWindow})
		if err != nil {
			t.Fatal(err)
		}
		stats := l.Stats()
		return stats.Allowed[hybridlimit.SourceFallback]+stats.Denied[hybridlimit.SourceFallback] > 0
	})
}

func ready(t *testing.T, s *Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.limiters.hub.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// After the hub was closed, requests fail with Unavailable.
func TestClosedHub(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Mini(t).Addr()})
	defer rdb.Close()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(hub, Options{})
	if err != nil {
		t.Fatal(err)
	}
	load(t, s, modeRules)
	hub.Close()
	if _, err := s.ShouldRateLimit(context.Background(), request("shop", desc("user", "a"))); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}
