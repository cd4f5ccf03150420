package hybrid_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestNonsenseIsAnOutage checks that a Redis with unreadable replies counts as a Redis
// that does not answer: callers get no error, the fallback decides, and the breaker
// opens.
func TestNonsenseIsAnOutage(t *testing.T) {
	for i, text := range redistest.Nonsense {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			addr := redistest.Odd(t, func([]string) string { return text })
			l := newLimiter(t, redistest.Client(t, addr), still(10), hybrid.Config{
				Mode: []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeExact}[i%2],
				Hub:  hybrid.HubConfig{FleetSize: 2, SyncTimeout: 20 * time.Millisecond, Functions: i%3 == 0},
			})
			var got int64
			for range 20 {
				res := ask(t, l, "k", 1)
				got += res.Granted
				if res.Source != hybridlimit.SourceFallback {
					t.Errorf("%q: %+v", text, res)
				}
			}
			if got != 5 {
				t.Errorf("%q: %d units of a share of 5", text, got)
			}
			// An error about the client's own work (MOVED and similar) tells nothing
			// about the health of Redis, and a permanent refusal is no outage.
			healthy := strings.HasPrefix(text, "-MOVED") || strings.HasPrefix(text, "-ASK") || strings.HasPrefix(text, "-NOSCRIPT") ||
				strings.HasPrefix(text, "-Function") || strings.HasPrefix(text, "-HLBATCH")
			if !healthy {
				redistest.Eventually(t, 10*time.Second, "the breaker opens", func() bool {
					ask(t, l, "k", 1)
					return l.Stats().Breaker == breaker.Open
				})
			}
		})
	}
}

// breaking is a hook that panics where go-redis reads a reply.
type breaking struct{}

func (breaking) DialHook(next redis.DialHook) redis.DialHook { return next }
func (breaking) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("makeslice: len out of range") }
}

func (breaking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestAPanicIsAnOutage checks that a panic in a call to Redis counts as an outage: the
// fallback decides, the breaker opens, and the log has a line.
func TestAPanicIsAnOutage(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeDeferred, hybrid.ModeStrict, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			log := newCapture()
			rdb := redistest.Client(t, redistest.Odd(t, func([]string) string { return ":1\r\n" }))
			rdb.AddHook(breaking{})
			l := newLimiter(t, rdb, still(10), hybrid.Config{
				Mode: mode, Hub: hybrid.HubConfig{FleetSize: 2, SyncTimeout: time.Second, Logger: slog.New(log)},
			})
			redistest.Eventually(t, 10*time.Second, "the breaker opens", func() bool {
				ask(t, l, "k", 1)
				return l.Stats().Breaker == breaker.Open
			})
			if res := ask(t, l, "other", 1); !res.Allowed || res.Source != hybridlimit.SourceFallback {
				t.Errorf("%+v", res)
			}
			if lines := strings.Join(log.all(), "\n"); !strings.Contains(lines, "ERROR hybridlimit: a call to Redis panicked; it counts as unanswered panic=makeslice") {
				t.Errorf("logged %s", lines)
			}
		})
	}
}
