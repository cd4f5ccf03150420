package hybrid_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestDenialLogOfAQuietKey checks that denials of a key that is not used again
// are reported in time, and not only when the limiter closes.
func TestDenialLogOfAQuietKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log)})
		l := add(t, h, still(3), hybrid.Config{Name: "api", LogDenials: 5 * time.Second})
		time.Sleep(2100 * time.Millisecond)
		for range 152 {
			ask(t, l, "k", 1)
		}
		time.Sleep(8 * time.Second) // the interval, and two heartbeats
		if told := toldOf(t, log.all(), "api"); told != 149 {
			t.Errorf("the log reports %d denials, want 149: %q", told, log.all())
		}
		before := len(log.all())
		time.Sleep(time.Minute)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if after := log.all(); len(after) != before {
			t.Errorf("more lines without a denial: %q", after[before:])
		}
	})
}

// TestDenialLogShowsTheLimit checks that a line has the limit that denied, as
// ParseLimit reads it: the limiter's, the key's, or the call's.
func TestDenialLogShowsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log)})
		big, small := hybridlimit.TokenBucket(100, time.Minute, 10), hybridlimit.TokenBucket(7, time.Minute, 2)
		l := add(t, h, big, hybrid.Config{Name: "api", LogDenials: time.Millisecond, LimitFor: func(key string) hybridlimit.Limit {
			if key == "small" {
				return small
			}
			return big
		}})
		window := add(t, h, hybridlimit.SlidingWindow(5, time.Minute), hybrid.Config{Name: "window", Mode: hybrid.ModeExact, LogDenials: time.Millisecond})
		time.Sleep(2100 * time.Millisecond)
		ask(t, l, "alice", 11)
		time.Sleep(time.Second)
		ask(t, l, "small", 3)
		time.Sleep(time.Second)
		must(t)(l.AllowLimit(t.Context(), "alice", 1, hybridlimit.Blocked()))
		must(t)(window.AllowLimit(t.Context(), "alice", 5, hybridlimit.SlidingWindow(4, time.Minute)))
		text := strings.Join(log.all(), "\n")
		for _, want := range []string{
			"limiter=api key_digest=" + (lua.Names{}).Digest("api", "alice") + " units=11 limit=100/min burst 10 source=static",
			"limiter=api key_digest=" + (lua.Names{}).Digest("api", "small") + " units=3 limit=7/min burst 2 source=static",
			"limiter=api key_digest=" + (lua.Names{}).Digest("api", "alice") + " units=1 limit=blocked source=static",
			"limiter=window key_digest=" + (lua.Names{}).Digest("window", "alice") + " units=5 limit=4/min sliding window source=static",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	})
}
