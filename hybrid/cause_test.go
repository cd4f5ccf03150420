package hybrid_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestTheLogHasTheCause checks that the log names the cause of an outage: the
// connection is refused. go-redis dials for longer than a call waits, so the
// deadline of each call came first.
func TestTheLogHasTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		rdb := b.Client(func(o *redis.Options) { o.DialerRetries = 5 }) // go-redis's default
		l := newLimiter(t, rdb, hybridlimit.PerSecond(100), hybrid.Config{Hub: hybrid.HubConfig{Logger: slog.New(log)}})
		time.Sleep(2100 * time.Millisecond)
		for range 100 {
			ask(t, l, "k", 1)
			time.Sleep(10 * time.Millisecond)
		}
		b.Kill()
		for range 500 {
			ask(t, l, "k", 1)
			time.Sleep(10 * time.Millisecond)
		}
		for _, line := range log.all() {
			if strings.HasPrefix(line, lineBroken) {
				if _, cause, _ := strings.Cut(line, "cause="); !strings.HasPrefix(cause, "dial ") || !strings.Contains(cause, "connection refused") {
					t.Errorf("the line does not have the cause: %s", line)
				}
				return
			}
		}
		t.Errorf("no line about the outage in %q", log.all())
	})
}
