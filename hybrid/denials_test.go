package hybrid_test

import (
	"context"
	"errors"
	"fmt"
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

// TestDenialLog checks that denials are logged only with LogDenials, at a
// bounded rate, and without their key.
func TestDenialLog(t *testing.T) {
	t.Parallel()
	for _, secret := range []hybridlimit.Secret{"", hashSecret} {
		synctest.Test(t, func(t *testing.T) {
			b, log := redistest.NewBubble(t), newCapture()
			h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log), HashKeys: secret})
			l := add(t, h, still(3), hybrid.Config{Name: "api", LogDenials: 10 * time.Second})
			silent := add(t, h, still(3), hybrid.Config{Name: "silent"})
			time.Sleep(2100 * time.Millisecond)
			denials := func() (lines []string) {
				for _, line := range log.all() {
					if strings.Contains(line, "hybridlimit: denied") {
						lines = append(lines, line)
					}
				}
				return lines
			}
			const key = "alice@example.com"
			digest := lua.Names{HashKeys: secret}.Digest("api", key)
			for range 3 {
				ask(t, l, key, 1)
				ask(t, silent, key, 1)
			}
			if lines := denials(); len(lines) != 0 {
				t.Errorf("logged before anything was denied: %q", lines)
			}
			const step = 4 * time.Millisecond
			began := time.Now()
			var after []time.Duration // the time of each line since the line before, or since the start
			for last := began; time.Since(began) < 70*time.Second; {
				ask(t, l, key, 1)
				ask(t, silent, key, 1)
				if len(denials()) > len(after) {
					after = append(after, time.Since(last))
					last = time.Now()
				}
				time.Sleep(step)
			}
			lines := denials()
			// After each heartbeat, one a second, the next denial from memory
			// is logged.
			const seen = time.Second + step + time.Millisecond
			for i, d := range after {
				if i == 0 && d > seen || i > 0 && (d < 10*time.Second || d > 10*time.Second+seen) {
					t.Errorf("line %d after %v", i, d)
				}
			}
			if len(lines) < 4 || len(lines) != len(after) {
				t.Fatalf("%d lines in 70 s, want at least 4, one at a time: %q", len(lines), lines)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, "INFO hybridlimit: denied") || !strings.Contains(line, "limiter=api") || !strings.Contains(line, "key_digest="+digest) ||
					!strings.Contains(line, "units=1 limit=1/h burst 3 source=") || !strings.Contains(line, "retry_after=") || !strings.Contains(line, " more=") {
					t.Errorf("line %d: %s", i, line)
				}
				if strings.Contains(line, "alice") || strings.Contains(line, "example.com") {
					t.Errorf("the key is in %s", line)
				}
			}
			if i := inspect(t, l, key); i.Digest != digest {
				t.Errorf("Inspect has the digest %q, the log %q", i.Digest, digest)
			}
		})
	}
}

// TestDenialLogOfOthers checks that other denials are logged too: of a cost
// above the burst, of a shadow limit, of one limit among several, of a switch.
func TestDenialLogOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log)})
		every := hybrid.Config{LogDenials: time.Millisecond}
		make := func(name string, shadow bool) *hybrid.Limiter {
			cfg := every
			cfg.Name, cfg.Shadow = name, shadow
			return add(t, h, still(3), cfg)
		}
		never, shadow, wide, switched := make("never", false), make("shadow", true), make("wide", false), make("switched", false)
		narrow := add(t, h, still(1), hybrid.Config{Name: "narrow", LogDenials: time.Millisecond})
		time.Sleep(2100 * time.Millisecond)
		ask(t, never, "k", 4)
		ask(t, shadow, "k", 3)
		time.Sleep(6 * time.Second) // until then the fast path denies
		ask(t, shadow, "k", 1)
		for range 2 {
			must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: wide, Key: "w", N: 1}, hybridlimit.Ask{Limiter: narrow, Key: "n", N: 1}))
		}
		flip(t, switched, hybrid.SwitchDenyAll)
		ask(t, switched, "k", 1)
		text := strings.Join(log.all(), "\n")
		for name, want := range map[string]string{
			"never": "units=4 limit=1/h burst 3 source=static retry_after=never", "shadow": "source=", "narrow": "units=1 limit=1/h burst 1 source=", "switched": "source=switch retry_after=1s",
		} {
			_, line, ok := strings.Cut(text, "limiter="+name+" key_digest=")
			line, _, _ = strings.Cut(line, "\n")
			if !ok || !strings.Contains(line, want) || strings.Contains(line, "shadow=true") != (name == "shadow") {
				t.Errorf("%s: %q", name, line)
			}
		}
		if strings.Contains(text, "limiter=wide key_digest=") {
			t.Error("a limit that admitted is logged as denying")
		}
	})
}

// TestDenialLogOfTwoKeys checks that of several keys under one limit the key
// that denied is logged.
func TestDenialLogOfTwoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log)})
		l := add(t, h, still(3), hybrid.Config{Name: "api", LogDenials: time.Millisecond})
		time.Sleep(2100 * time.Millisecond)
		for range 3 {
			ask(t, l, "used", 1)
		}
		if res := must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "new", N: 1}, hybridlimit.Ask{Limiter: l, Key: "used", N: 1})); res.Allowed {
			t.Fatalf("%+v", res)
		}
		text := strings.Join(log.all(), "\n")
		if !strings.Contains(text, "key_digest="+(lua.Names{}).Digest("api", "used")) || strings.Contains(text, (lua.Names{}).Digest("api", "new")) {
			t.Errorf("%s", text)
		}
	})
}

func TestLogDenialsIsChecked(t *testing.T) {
	for d, ok := range map[time.Duration]bool{0: true, -1: false, time.Microsecond: false, time.Millisecond: true} {
		l, err := hybrid.New(nobody(t), still(1), hybrid.Config{Name: "api", LogDenials: d, Hub: hybrid.HubConfig{Logger: quiet}})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("hybrid: Config.LogDenials (%v) must be at least 1ms, or 0 for none", d)) {
			t.Errorf("%v: %v", d, err)
		}
		if err == nil {
			l.Close()
		}
	}
}

// TestDenialLogOfEveryVerb checks that every verb that decides logs its
// denials, under several modes and algorithms. Cause: only AllowN and AllowAll
// logged them.
func TestDenialLogOfEveryVerb(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name  string
		limit hybridlimit.Limit
		mode  hybrid.Mode
	}{
		{"bucket", still(3), hybrid.ModeAuto},
		{"strict", still(3), hybrid.ModeStrict},
		{"exact", still(3), hybrid.ModeExact},
		{"queue", hybridlimit.LeakyQueue(1, time.Hour, 3), hybrid.ModeAuto},
		{"log", hybridlimit.SlidingLog(3, time.Hour), hybrid.ModeAuto},
	} {
		for verb, call := range map[string]func(ctx context.Context, l *hybrid.Limiter) error{
			"Allow": func(ctx context.Context, l *hybrid.Limiter) error { _, err := l.Allow(ctx, "k"); return err },
			"AllowLimit": func(ctx context.Context, l *hybrid.Limiter) error {
				_, err := l.AllowLimit(ctx, "k", 1, hybridlimit.Blocked())
				return err
			},
			"AllowAtMost": func(ctx context.Context, l *hybrid.Limiter) error { _, err := l.AllowAtMost(ctx, "k", 2); return err },
			"AllowAll": func(ctx context.Context, l *hybrid.Limiter) error {
				_, err := hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: l, Key: "k", N: 1})
				return err
			},
			"Wait": func(ctx context.Context, l *hybrid.Limiter) error {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("waited: %w", err)
				}
				return nil
			},
			"Reserve": func(ctx context.Context, l *hybrid.Limiter) error {
				for range 10 { // a burst is booked ahead before one is denied
					if r, err := l.Reserve(ctx, "k", 1); err != nil || !r.Allowed {
						return err
					}
				}
				return errors.New("nothing was denied")
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				b, log := redistest.NewBubble(t), newCapture()
				l := newLimiter(t, b.Client(nil), kind.limit, hybrid.Config{Mode: kind.mode, LogDenials: time.Millisecond, Hub: hybrid.HubConfig{Logger: slog.New(log)}})
				time.Sleep(2100 * time.Millisecond)
				ask(t, l, "k", 3)
				time.Sleep(10 * time.Second) // until then memory denies, and the log does not see all of that
				before := l.Stats()
				if err := call(t.Context(), l); err != nil {
					t.Fatalf("%s, %s: %v", kind.name, verb, err)
				}
				var denied int64
				for source, n := range l.Stats().Denied {
					denied += n - before.Denied[source]
				}
				lines := strings.Count(strings.Join(log.all(), "\n"), "hybridlimit: denied")
				if denied == 0 || lines == 0 {
					t.Errorf("%s, %s: %d denials counted, %d logged", kind.name, verb, denied, lines)
				}
			})
		}
		synctest.Test(t, func(t *testing.T) { // and by a switch
			b, log := redistest.NewBubble(t), newCapture()
			l := newLimiter(t, b.Client(nil), kind.limit, hybrid.Config{Mode: kind.mode, LogDenials: time.Millisecond, Hub: hybrid.HubConfig{Logger: slog.New(log)}})
			flip(t, l, hybrid.SwitchDenyAll)
			must(t)(l.AllowAtMost(t.Context(), "k", 2))
			if !strings.Contains(strings.Join(log.all(), "\n"), "units=2 limit="+text(t, kind.limit)+" source=switch") {
				t.Errorf("%s: the switch's denial is not logged: %q", kind.name, log.all())
			}
		})
	}
}

// text returns a limit in the form that ParseLimit reads.
func text(t *testing.T, limit hybridlimit.Limit) string {
	t.Helper()
	b, err := limit.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
