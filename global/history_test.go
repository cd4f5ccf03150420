package global_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// named returns a context with a request id.
func named(t testing.TB, id string) context.Context {
	t.Helper()
	ctx, err := hybridlimit.WithRequestID(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// trail returns a history as text: units and request ids.
func trail(t testing.TB, l *global.Limiter, key string) string {
	t.Helper()
	log, err := l.History(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(log, func(a, b hybridlimit.Admission) int { return a.At.Compare(b.At) }) {
		t.Errorf("not in order: %+v", log)
	}
	var out []string
	for _, a := range log {
		if age := time.Since(a.At); age < -time.Second || age > time.Hour {
			t.Errorf("admitted at %v, %v ago", a.At, age)
		}
		out = append(out, fmt.Sprintf("%d%q", a.Units, a.RequestID))
	}
	return strings.Join(out, " ")
}

// TestHistory checks that a log returns its admissions with their request ids, over
// several pages, and with any bytes in a request id.
func TestHistory(t *testing.T) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.New(t).Client(t)
			if functions {
				redistest.NeedFunctions(t, rdb)
			}
			cfg := patientConfig
			cfg.Functions = functions
			l := newLimiter(t, rdb, hybridlimit.SlidingLog(3*wire.MaxHistory, time.Hour), cfg)
			if got := trail(t, l, "k"); got != "" {
				t.Errorf("history of an unused key: %s", got)
			}
			var want []string
			take := func(id string, n int64) {
				t.Helper()
				res, err := l.AllowN(named(t, id), "k", n)
				if err != nil || !res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				}
				want = append(want, fmt.Sprintf("%d%q", n, id))
			}
			longest := strings.Repeat("\xff", 128)
			for _, id := range []string{"req-1", "", "a b\r\n{}%+", "\x00", "✓ 🙂", longest} {
				take(id, 2)
			}
			for i := range 2*wire.MaxHistory + 10 {
				take(fmt.Sprint(i), 1)
			}
			allow(t, l, "other", 1)
			if res, err := l.AllowN(named(t, "denied"), "k", 3*wire.MaxHistory); err != nil || res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if got := trail(t, l, "k"); got != strings.Join(want, " ") {
				t.Errorf("%s\nwant\n%s", got, strings.Join(want, " "))
			}
			// A charge is in the history. A cancelled reservation is not.
			if _, err := l.Charge(named(t, "charged"), "c", 4); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"kept", "cancelled", "after"} {
				r, err := l.Reserve(named(t, id), "c", 2)
				if err != nil {
					t.Fatal(err)
				}
				if id == "cancelled" {
					defer func() {
						if err := r.Cancel(context.Background()); err != nil {
							t.Error(err)
						}
						if got := trail(t, l, "c"); got != `4"charged" 2"kept" 2"after"` {
							t.Error(got)
						}
					}()
				}
			}
			if got := trail(t, l, "c"); got != `4"charged" 2"kept" 2"cancelled" 2"after"` {
				t.Error(got)
			}
		})
	}
}

func TestHistoryRefuses(t *testing.T) {
	for _, limit := range algorithms {
		inBubble(t, limit, global.Config{}, defaults, func(t *testing.T, s *scene) {
			log, err := s.History(t.Context(), "k")
			if logs := limit.Algorithm == hybridlimit.AlgSlidingLog; logs != (err == nil) || !logs && (!errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), limit.Algorithm.String()+" keeps no log")) || len(log) > 0 {
				t.Errorf("%v: %+v, %v", limit, log, err)
			}
		})
	}
	inBubble(t, hybridlimit.SlidingLog(5, time.Hour), global.Config{}, func(o *redis.Options) { o.DialerRetries = 1 }, func(t *testing.T, s *scene) {
		if _, err := s.History(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if log, err := s.History(ended, "k"); !errors.Is(err, context.Canceled) || errors.Is(err, hybridlimit.ErrUnavailable) || log != nil {
			t.Errorf("%+v, %v", log, err)
		}
		s.bubble.Mini.SetError("LOADING")
		if log, err := s.History(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) || log != nil {
			t.Errorf("%+v, %v", log, err)
		}
		s.Close()
		if _, err := s.History(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestCancelInTheNextWindow checks that a Cancel in the next window gives nothing back
// there: the units were taken in the window before.
func TestCancelInTheNextWindow(t *testing.T) {
	inBubble(t, hybridlimit.FixedWindow(10, 10*time.Second), global.Config{}, defaults, func(t *testing.T, s *scene) {
		r, err := s.Reserve(t.Context(), "k", 4)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		allow(t, s.Limiter, "k", 5)
		if err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := left(t, s.Limiter, "k"); got != 5 {
			t.Errorf("%d of 10 units are left after five were taken, want 5", got)
		}
	})
}
