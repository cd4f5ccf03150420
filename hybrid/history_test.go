package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// identified returns a context with a request ID.
func identified(t testing.TB, id string) context.Context {
	t.Helper()
	ctx, err := hybridlimit.WithRequestID(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// trail returns a history in short form: units and request IDs.
func trail(t testing.TB, l *hybrid.Limiter, key string) string {
	t.Helper()
	log, err := l.History(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range log {
		out = append(out, fmt.Sprintf("%d%q", a.Units, a.RequestID))
	}
	return strings.Join(out, " ")
}

// TestHistory checks that a log has the admissions of all processes, with any
// verb and mode, and nothing else.
func TestHistory(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	for name, functions := range withAndWithout {
		for _, mode := range modes {
			if functions && mode != hybrid.ModeAuto && mode != hybrid.ModeExact && !testenv.Full() {
				continue // the same batches under another name
			}
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				if functions {
					redistest.NeedFunctions(t, srv.Client(t))
				}
				var ls []*hybrid.Limiter
				for range 2 {
					cfg := patient(hybrid.Config{Mode: mode})
					cfg.Hub.Prefix, cfg.Hub.Functions = fmt.Sprint(name, mode), functions
					ls = append(ls, newLimiter(t, srv.Client(t), hybridlimit.SlidingLog(2*wire.MaxHistory, time.Hour), cfg))
				}
				ctx := t.Context()
				for i, l := range ls {
					if res, err := l.AllowN(identified(t, fmt.Sprint("allow\n", i)), "k", 2); err != nil || !res.Allowed {
						t.Fatalf("%+v, %v", res, err)
					}
				}
				r, err := ls[0].Reserve(identified(t, "cancelled"), "k", 3)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := ls[0].Wait(identified(t, "waited"), "k", 1); err != nil {
					t.Fatal(err)
				}
				if _, err := ls[1].Charge(identified(t, "charged"), "k", 4); err != nil {
					t.Fatal(err)
				}
				if got := trail(t, ls[1], "k"); got != `2"allow\n0" 2"allow\n1" 3"cancelled" 1"waited" 4"charged"` {
					t.Error(got)
				}
				if err := r.Cancel(ctx); err != nil {
					t.Fatal(err)
				}
				if res, err := ls[0].AllowN(identified(t, "denied"), "k", 2*wire.MaxHistory-8); err != nil || res.Allowed {
					t.Errorf("%+v, %v", res, err)
				}
				want := `2"allow\n0" 2"allow\n1" 1"waited" 4"charged"`
				if got := trail(t, ls[0], "k"); got != want {
					t.Error(got)
				}
				for range wire.MaxHistory {
					ask(t, ls[1], "k", 1)
				}
				if got := trail(t, ls[0], "k"); got != want+strings.Repeat(` 1""`, wire.MaxHistory) {
					t.Error(got)
				}
				shutdown(t, ls...)
				for _, l := range ls {
					balance(t, l.Stats())
				}
			})
		}
	}
}

func TestHistoryRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(oneDial), hybrid.HubConfig{})
		for i, limit := range algorithms {
			l := add(t, h, limit, hybrid.Config{Name: fmt.Sprint("l", i)})
			log, err := l.History(t.Context(), "k")
			if logs := limit.Algorithm == hybridlimit.AlgSlidingLog; logs != (err == nil) || !logs && (!errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), limit.Algorithm.String()+" keeps no log")) || len(log) > 0 {
				t.Errorf("%v: %+v, %v", limit, log, err)
			}
		}
		l := add(t, h, hybridlimit.SlidingLog(5, time.Hour), hybrid.Config{Name: "log"})
		if _, err := l.History(t.Context(), ""); !errors.Is(err, hybridlimit.ErrEmptyKey) {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.History(ended, "k"); !errors.Is(err, context.Canceled) || errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Error(err)
		}
		b.Kill()
		for range 20 { // before the breaker opens, and after
			if log, err := l.History(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrUnavailable) || log != nil {
				t.Errorf("%+v, %v", log, err)
			}
		}
		l.Close()
		if _, err := l.History(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestAllowAllWithoutAHub checks that AllowAll uses the hub of the first
// limiter.
func TestAllowAllWithoutAHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		_, user, addr, _ := three(t, b, hybrid.ModeAuto, nil)
		for i := range 6 {
			res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "ann", N: 1}, hybridlimit.Ask{Limiter: addr, Key: "::1", N: 1})
			if err != nil || res.Allowed != (i < 5) || res.Policy != "user" {
				t.Errorf("call %d: %+v, %v", i, res, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: addr, Key: "::1", N: 4}); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		stranger := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Name: "stranger"})
		for name, asks := range map[string][]hybridlimit.Ask{"no asks": nil, "no limiter": {{Key: "k", N: 1}}, "another hub": {{Limiter: user, Key: "k", N: 1}, {Limiter: stranger, Key: "k", N: 1}}} {
			if res, err := hybridlimit.AllowAll(t.Context(), asks...); !errors.Is(err, hybridlimit.ErrInvalid) || res.Allowed {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
	})
}

// TestCancelInTheNextWindow checks that Cancel gives units back to the window
// in which they were taken.
func TestCancelInTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, redistest.NewBubble(t).Client(nil), hybridlimit.FixedWindow(10, 10*time.Second), patient(hybrid.Config{Mode: hybrid.ModeExact}))
		r, err := l.Reserve(t.Context(), "k", 4)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		ask(t, l, "k", 5)
		if err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 5 {
			t.Errorf("after 5 of 10 units: %+v, %v, want 5 left", res, err)
		}
		balance(t, l.Stats())
	})
}
