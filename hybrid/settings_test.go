package hybrid_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestSettings checks that settings change a running limiter, and that settings without an entry for it take them back.
func TestSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		l := add(t, h, still(100), hybrid.Config{Name: "api"})
		other := add(t, h, still(10), hybrid.Config{Name: "other", Mode: hybrid.ModeExact})
		time.Sleep(3 * time.Second)
		if i := inspected(t, l, "k"); i.Credit == 0 {
			t.Fatalf("%+v", i) // the test below would prove nothing
		}
		strict, deny, shadow := hybrid.ModeStrict, hybrid.FallbackDenyAll, true
		set := map[string]hybrid.Settings{"api": {
			Limit: still(20), Keys: map[string]hybridlimit.Limit{"own": still(3)}, Mode: &strict, Fallback: &deny, Shadow: &shadow,
		}}
		if err := h.SetSettings(set); err != nil {
			t.Fatal(err)
		}
		i := inspected(t, l, "k")
		if i.Limit != still(20) || i.Mode != "strict" || i.Credit != 0 || !i.Shadow || l.Mode() != hybrid.ModeStrict {
			t.Errorf("%+v", i)
		}
		if own := inspected(t, l, "own"); own.Limit != still(3) || own.LimitFrom != "key" {
			t.Errorf("%+v", own)
		}
		if res := ask(t, l, "own", 4); !res.Shadowed || res.Limit != 3 {
			t.Errorf("%+v", res)
		}
		if p := l.Policy("own"); p.Limit != still(3) || !p.Shadow {
			t.Errorf("%+v", p)
		}
		if i := inspected(t, other, "k"); i.Limit != still(10) || i.Mode != "exact" {
			t.Errorf("the other limiter: %+v", i)
		}
		b.Kill()
		time.Sleep(3 * time.Second)
		if i := inspected(t, l, "new"); i.Outcome != hybrid.OutcomeDeny || i.Source != hybridlimit.SourceTimeout && i.Source != hybridlimit.SourceFallback {
			t.Errorf("without Redis: %+v", i)
		}
		if err := h.SetSettings(nil); err != nil {
			t.Fatal(err)
		}
		i = inspected(t, l, "own")
		if i.Limit != still(100) || i.LimitFrom != "config" || i.Mode != "auto" || i.Shadow {
			t.Errorf("taken back: %+v", i)
		}
		if i := inspected(t, l, "new"); i.Outcome != hybrid.OutcomeAllow || i.Source != hybridlimit.SourceFallback {
			t.Errorf("without Redis, taken back: %+v", i)
		}
	})
}

func inspected(t *testing.T, l *hybrid.Limiter, key string) hybrid.Inspection {
	t.Helper()
	i, err := l.Inspect(t.Context(), key)
	if err != nil {
		t.Error(err)
	}
	return i
}

// TestSettingsAreAllOrNothing checks that one violation leaves all limiters as they are, and that the error names every
// violation.
func TestSettingsAreAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		l := add(t, h, still(10), hybrid.Config{Name: "api"})
		add(t, h, still(10), hybrid.Config{Name: "exact", Mode: hybrid.ModeExact})
		time.Sleep(3 * time.Second)
		exact, auto, mode, fallback := hybrid.ModeExact, hybrid.ModeAuto, hybrid.Mode(9), hybrid.Fallback(9)
		good := hybrid.Settings{Limit: still(20)}
		for name, tc := range map[string]struct {
			bad  map[string]hybrid.Settings
			want []string
		}{
			"limit":     {map[string]hybrid.Settings{"x": {Limit: hybridlimit.Limit{Rate: -1}}}, []string{`"x"`, "Limit.Rate", "-1"}},
			"algorithm": {map[string]hybrid.Settings{"api": {Limit: hybridlimit.FixedWindow(5, time.Second)}}, []string{`"api"`, "Settings.Limit.Algorithm", "fixed"}},
			"keys": {
				map[string]hybrid.Settings{"api": {Keys: map[string]hybridlimit.Limit{"a": hybridlimit.FixedWindow(5, time.Second), "b": hybridlimit.SlidingLog(5, time.Second)}}},
				[]string{`Settings.Keys["a"].Algorithm`, `Settings.Keys["b"].Algorithm`},
			},
			"key's limit": {map[string]hybrid.Settings{"x": {Keys: map[string]hybridlimit.Limit{"a": {}}}}, []string{`Settings.Keys["a"]`}},
			"mode":        {map[string]hybrid.Settings{"x": {Mode: &mode, Fallback: &fallback}}, []string{"Settings.Mode", "Settings.Fallback", "9"}},
			"exact":       {map[string]hybrid.Settings{"api": {Mode: &exact}, "exact": {Mode: &auto}}, []string{`"api"`, `"exact"`, "Settings.Mode"}},
			"name":        {map[string]hybrid.Settings{"a:b": {}}, []string{"a:b", "name"}},
		} {
			all := map[string]hybrid.Settings{"api": good}
			for k, v := range tc.bad {
				all[k] = v
			}
			err := h.SetSettings(all)
			if !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q does not name %s", name, err, want)
				}
			}
			if l.Limit() != still(10) {
				t.Fatalf("%s: the limit is %v", name, l.Limit())
			}
		}
	})
}

// TestSettingsOfALaterLimiter checks that settings wait for their limiter, and that a limiter that they do not fit is
// refused.
func TestSettingsOfALaterLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		if err := h.SetSettings(map[string]hybrid.Settings{"late": {Limit: still(20)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Limiter(hybridlimit.FixedWindow(5, time.Second), hybrid.Config{Name: "late"}); !errors.Is(err, hybridlimit.ErrInvalid) {
			t.Errorf("a limiter of another algorithm: %v", err)
		}
		l := add(t, h, still(10), hybrid.Config{Name: "late"})
		if s := l.LimitState(); s.InForce != still(20) || s.Source != hybrid.LimitFromSettings || s.Configured != still(10) {
			t.Errorf("%+v", s)
		}
		// A second hub of this program may have the same limiter by its configured limit.
		add(t, newHub(t, b.Client(nil), hybrid.HubConfig{}), still(10), hybrid.Config{Name: "late"})
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if err := h.SetSettings(nil); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// asking is a slog.Handler that asks the hub about itself, and so waits for its locks.
type asking struct {
	slog.Handler
	hub   *hybrid.Hub
	lines *int
}

func (a *asking) WithAttrs([]slog.Attr) slog.Handler { return a }

func (a *asking) Handle(context.Context, slog.Record) error {
	*a.lines++
	for _, l := range a.hub.Limiters() {
		l.LimitState()
		l.Switch()
	}
	return a.hub.SetSettings(map[string]hybrid.Settings{"api": {Limit: still(20)}, "late": {Limit: still(20)}})
}

// TestSettingsLogWithoutLocks checks that no lock is held while a change of a limit is logged.
func TestSettingsLogWithoutLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lines := redistest.NewBubble(t), 0
		log := &asking{Handler: slog.DiscardHandler, lines: &lines}
		log.Handler = slog.NewTextHandler(io.Discard, nil) // it is enabled, unlike DiscardHandler
		h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log)})
		log.hub = h
		l := add(t, h, still(10), hybrid.Config{Name: "api"})
		if err := h.SetSettings(map[string]hybrid.Settings{"api": {Limit: still(20)}, "late": {Limit: still(20)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // a message is logged once a second
		late := add(t, h, still(10), hybrid.Config{Name: "late"})
		if lines != 2 || l.Limit() != still(20) || late.Limit() != still(20) {
			t.Errorf("%d lines; %v, %v", lines, l.Limit(), late.Limit())
		}
	})
}

// TestSettingsBelowTheFloor checks that a limit whose burst is below Config.FallbackFloor applies: without Redis a process
// admits the burst, and not the floor.
func TestSettingsBelowTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		l := add(t, h, still(100), hybrid.Config{Name: "api", FallbackFloor: 50})
		time.Sleep(3 * time.Second)
		if err := h.SetSettings(map[string]hybrid.Settings{"api": {Limit: still(7)}}); err != nil {
			t.Fatal(err)
		}
		b.Kill()
		time.Sleep(3 * time.Second)
		var units int64
		for range 100 {
			units += ask(t, l, "k", 1).Granted
		}
		if units != 7 {
			t.Errorf("%d units without Redis, want 7", units)
		}
	})
}
