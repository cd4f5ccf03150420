package hybrid_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

const hashSecret hybridlimit.Secret = "0123456789abcdef0123456789abcdef"

// overheard records the commands that are sent to Redis.
type overheard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *overheard) hear(_ int, cmd []string) redistest.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(&o.text, "%q\n", cmd)
	return redistest.Forward()
}

// TestHashKeys checks that with HashKeys no key and no subject reaches Redis or
// the log, with any verb. Limiters decide as they do without HashKeys, and
// global and hybrid share the state of a key.
func TestHashKeys(t *testing.T) {
	for _, hashed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b, log, heard := redistest.NewBubble(t), newCapture(), &overheard{}
			link := b.Link()
			link.Script(heard.hear)
			ctx, rdb := t.Context(), link.Client(nil)
			var secret hybridlimit.Secret
			if hashed {
				secret = hashSecret
			}
			tenant := func(key string) string { name, _, _ := strings.Cut(key, "/"); return name }
			h := newHub(t, rdb, hybrid.HubConfig{HashKeys: secret, Logger: slog.New(log)})
			l := add(t, h, still(10), hybrid.Config{Name: "api", TagBy: tenant})
			exact := add(t, h, still(10), hybrid.Config{Name: "exact", Mode: hybrid.ModeExact, TagBy: tenant})
			logged := add(t, h, hybridlimit.SlidingLog(10, time.Hour), hybrid.Config{Name: "log", TagBy: tenant})
			cfg := global.Config{Name: "api", HashKeys: secret, TagBy: tenant}
			g, err := global.New(rdb, still(10), cfg)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2300 * time.Millisecond)
			const key, other = "acme/alice@example.com", "acme/bob@example.com"
			for _, k := range []string{key, other} {
				for i := range 12 {
					if res := ask(t, l, k, 1); res.Allowed != (i < 10) {
						t.Errorf("hashed %v, %s, call %d: %+v", hashed, k, i, res)
					}
					if res := ask(t, exact, k, 1); res.Allowed != (i < 10) {
						t.Errorf("hashed %v, %s, exact call %d: %+v", hashed, k, i, res)
					}
				}
				must(t)(logged.Allow(ctx, k))
				if entries, err := logged.History(ctx, k); err != nil || len(entries) != 1 {
					t.Errorf("hashed %v: history %v, %v", hashed, entries, err)
				}
			}
			time.Sleep(time.Second)
			if res := ask(t, g, key, 1); res.Allowed { // the same key of the same limit
				t.Errorf("hashed %v: global: %+v", hashed, res)
			}
			must(t)(l.Peek(ctx, key))
			must(t)(l.Charge(ctx, key, 1))
			must(t)(l.Refund(ctx, key, 1))
			must(t)(hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: exact, Key: key, N: 1}, hybridlimit.Ask{Limiter: l, Key: other, N: 1}))
			if r, err := l.Reserve(ctx, key, 1); err != nil || r.Cancel(ctx) != nil {
				t.Errorf("hashed %v: Reserve: %v", hashed, err)
			}
			if err := l.Reset(ctx, key); err != nil {
				t.Errorf("hashed %v: Reset: %v", hashed, err)
			}
			b.Restart() // the log has lines about the loss
			time.Sleep(3 * time.Second)
			shutdown(t, l, exact, logged)
			heard.mu.Lock()
			said := heard.text.String() + strings.Join(log.all(), "\n") + strings.Join(b.Mini.Keys(), "\n")
			heard.mu.Unlock()
			for _, personal := range []string{"alice", "bob", "acme", "example.com"} {
				if strings.Contains(said, personal) == hashed {
					t.Errorf("hashed %v: %q was sent, logged or kept: %v", hashed, personal, !hashed)
				}
			}
			if strings.Contains(said, string(hashSecret)) {
				t.Error("the secret was sent, logged or kept")
			}
			tags := map[string]bool{}
			for _, k := range b.Mini.Keys() {
				if tag, rest, ok := strings.Cut(k, "}:"); ok && !strings.HasPrefix(rest, "@") {
					tags[tag] = true
				}
			}
			if len(tags) != 1 {
				t.Errorf("hashed %v: keys of one subject are in %d slots", hashed, len(tags))
			}
			g.Close()
		})
	}
}

func TestHashKeysIsChecked(t *testing.T) {
	rdb := redistest.Client(t, "127.0.0.1:1", oneDial)
	for n, ok := range map[int]bool{0: true, 31: false, 32: true, 1024: true, 1025: false} {
		secret := hybridlimit.Secret(strings.Repeat("s", n))
		h, err := hybrid.NewHub(rdb, hybrid.HubConfig{HashKeys: secret, Logger: quiet})
		if (err == nil) != ok || err != nil && (!errors.Is(err, hybridlimit.ErrInvalid) || strings.Contains(err.Error(), "sss") || !strings.Contains(err.Error(), "HubConfig.HashKeys")) {
			t.Errorf("hybrid, %d bytes: %v", n, err)
		}
		if err == nil {
			h.Close()
		}
		g, err := global.New(rdb, still(1), global.Config{Name: "api", HashKeys: secret})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "global: Config.HashKeys ([secret]) must be 32 to 1024 bytes") {
			t.Errorf("global, %d bytes: %v", n, err)
		}
		if err == nil {
			g.Close()
		}
	}
}
