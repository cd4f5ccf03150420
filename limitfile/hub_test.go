package limitfile

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// hubWith returns a hub with the limiter "api" of a thousand units that do not come
// back during a test, on a Redis in virtual time.
func hubWith(t *testing.T) (*hybrid.Hub, *hybrid.Limiter) {
	t.Helper()
	b := redistest.NewBubble(t)
	h, err := hybrid.NewHub(b.Client(nil), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { h.Close() })
	l, err := h.Limiter(hybridlimit.TokenBucket(1, 24*time.Hour, 1000), hybrid.Config{Name: "api"})
	must(t, err)
	return h, l
}

func left(t *testing.T, l *hybrid.Limiter, key string) hybridlimit.Result {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	must(t, err)
	return res
}

// A hub changes with its file: limits, limits of keys, plans and the switch of shadow.
func TestHubFollowsItsFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, l := hubWith(t)
		path := filepath.Join(t.TempDir(), "limits.json")
		write(t, path, `{"api": {"limit": "1/d burst 100", "plans": {"gold": "1/d burst 500"}, "keys": {"g": "gold", "own": "1/d burst 7"}}}`)
		s, err := Watch(path, h, Config{Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		defer s.Close()
		want := func(key string, burst int64, shadow bool) {
			t.Helper()
			if p := l.Policy(key); p.Limit.BurstSize() != burst || p.Shadow != shadow {
				t.Errorf("%s: %+v, want a burst of %d", key, p, burst)
			}
		}
		want("k", 100, false)
		want("g", 500, false)
		want("own", 7, false)
		if res, err := l.AllowN(t.Context(), "k", 60); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		write(t, path, `{"api": {"limit": "1/d burst 50", "plans": {"gold": "1/d burst 900"}, "keys": {"g": "gold"}, "shadow": true}}`)
		time.Sleep(defaultEvery + 2*settle)
		want("k", 50, true)
		want("g", 900, true)
		want("own", 50, true)
		write(t, path, `{}`)
		time.Sleep(defaultEvery + 2*settle)
		want("k", 1000, false)
		want("g", 1000, false)
		// 60 of 100 were used. Neither the burst of 50 nor that of 1000 has given units.
		if res := left(t, l, "k"); res.Remaining > 40 {
			t.Errorf("%+v: a change has refilled the key", res)
		}
	})
}

// Ten thousand reloads of one text, and of one content in other forms, leave every
// level where it was, to the unit.
func TestReloadsRefillNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, l := hubWith(t)
		text := `{"api": {"limit": "1/d burst 100", "keys": {"own": "1/d burst 50"}}}`
		s, err := watch("limits.json", h, Config{Every: never, Logger: slog.New(slog.DiscardHandler)},
			func(string) ([]byte, error) { return []byte(text), nil })
		must(t, err)
		defer s.Close()
		for key, n := range map[string]int64{"k": 37, "own": 13} {
			if res, err := l.AllowN(t.Context(), key, n); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		time.Sleep(5 * time.Second) // the sync of what was used
		k, own := left(t, l, "k").Remaining, left(t, l, "own").Remaining
		if k != 63 || own != 37 {
			t.Fatalf("%d and %d left", k, own)
		}
		for i := range 10_000 {
			if i%2 == 0 {
				text = strings.Replace(text, ",", ", ", 1)
			}
			if i%100 == 0 {
				text = strings.ReplaceAll(text, " ", "")
				text = strings.ReplaceAll(text, "/d", "/d ")
				text = strings.ReplaceAll(text, "burst", "burst ")
			}
			s.poll()
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		// Up to 1000 s have passed. At one a day nothing has come back.
		if a, b := left(t, l, "k").Remaining, left(t, l, "own").Remaining; a != k || b != own {
			t.Errorf("%d and %d left after the reloads, %d and %d before", a, b, k, own)
		}
	})
}

// Settings that a running limiter cannot adopt are errors with the lines of the file,
// and leave all limiters as they are.
func TestHubRefusesAFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, l := hubWith(t)
		path := filepath.Join(t.TempDir(), "limits.json")
		write(t, path, `{"api": {"limit": "1/d burst 100"}}`)
		s, err := Watch(path, h, Config{Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		defer s.Close()
		write(t, path, "{\"later\": {\"limit\": \"5/s\"}, \"api\": {\n\"limit\": \"1/d fixed window\",\n\"mode\": \"exact\",\n\"keys\": {\"a.b\":\n\"2/d fixed window\"}}}")
		time.Sleep(defaultEvery + 2*settle)
		want := strings.ReplaceAll("limitfile: limits.json:2: api.limit (fixed window) must be the algorithm of the limiter, token bucket; "+
			"limits.json:3: api.mode (exact) cannot replace Config.Mode auto while the limiter runs; "+
			"limits.json:5: api.keys.a.b (fixed window) must be the algorithm of the limiter, token bucket", "limits.json", path)
		if err := s.Err(); err == nil || err.Error() != want || !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
		if p := l.Policy("k"); p.Limit.BurstSize() != 100 {
			t.Errorf("%+v", p)
		}
		// A limiter that comes later takes its settings from the file.
		write(t, path, `{"later": {"limit": "5/s"}}`)
		time.Sleep(defaultEvery + 2*settle)
		later, err := h.Limiter(hybridlimit.PerSecond(1), hybrid.Config{Name: "later"})
		must(t, err)
		if p := later.Policy("k"); p.Limit != hybridlimit.PerSecond(5) {
			t.Errorf("%+v", p)
		}
	})
}

// A name that no limiter has is logged: it has no other effect.
func TestMisspelledName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := hubWith(t)
		_, err := h.Concurrency(hybridlimit.Concurrent(3), hybrid.ConcurrencyConfig{Name: "calls"})
		must(t, err)
		hot, err := h.RateLeases(hybridlimit.PerSecond(3), hybrid.RateLeaseConfig{Name: "hot"})
		must(t, err)
		text, log := `{"api": {}, "aip": {}, "login": {}, "calls": {"limit": "4 concurrent"}, "hot": {"limit": "5/s", "keys": {"k": "7/s"}}}`, &journal{}
		s, err := watch("limits.json", h, Config{Every: never, Logger: log.logger()}, func(string) ([]byte, error) { return []byte(text), nil })
		must(t, err)
		defer s.Close()
		lines := log.take()
		if len(lines) != 2 || !strings.Contains(lines[1], `level=WARN msg="hybridlimit: a file has settings of limiters that do not exist`) ||
			!strings.HasSuffix(lines[1], `names="[aip login]"`) {
			t.Errorf("%q", lines)
		}
		if got := hot.Limit(); got != hybridlimit.PerSecond(5) || hot.Policy("k").Limit != hybridlimit.PerSecond(7) {
			t.Errorf("the leased rates have the limit %v, and k %v", got, hot.Policy("k").Limit)
		}
		text = `{"api": {"shadow": true}}`
		s.poll()
		if lines := log.take(); len(lines) != 1 {
			t.Errorf("%q", lines)
		}
	})
}

// Errors that name no setting keep their text.
func TestOtherErrorsOfAHub(t *testing.T) {
	f, err := Parse("limits.json", []byte("{\n\"api\": {}}"))
	must(t, err)
	var odd adapter.Violations
	odd.Add("Settings.Other.Part", 1, "is odd")
	for _, c := range []struct {
		err  error
		want string
	}{
		{hybridlimit.ErrClosed, "limitfile: limits.json: the limiters refuse the settings: hybridlimit: limiter is closed"},
		{&hybrid.SettingsError{Limiter: "api", Err: odd.Err("hybrid")}, "limitfile: limits.json:2: api.Other.Part (1) is odd"},
		{&hybrid.SettingsError{Limiter: "none", Err: odd.Err("hybrid")}, `limitfile: limits.json: the limiters refuse the settings: settings of limiter "none": hybrid: Settings.Other.Part (1) is odd`},
		{&hybrid.SettingsError{Limiter: "api", Err: errRefused}, `limitfile: limits.json: the limiters refuse the settings: settings of limiter "api": hybrid: refused`},
	} {
		if got := f.refused(c.err).Error(); got != c.want {
			t.Errorf("\n got %s\nwant %s", got, c.want)
		}
	}
}
