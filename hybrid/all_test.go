package hybrid_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// three returns a hub with three limiters: per user, per address, and for all.
func three(t *testing.T, b *redistest.Bubble, mode hybrid.Mode, alter func(*hybrid.Config)) (h *hybrid.Hub, user, addr, all *hybrid.Limiter) {
	h = newHub(t, b.Client(nil), hybrid.HubConfig{})
	mk := func(name string, burst int64) *hybrid.Limiter {
		cfg := hybrid.Config{Name: name, Mode: mode}
		if alter != nil {
			alter(&cfg)
		}
		return add(t, h, still(burst), cfg)
	}
	user, addr, all = mk("user", 5), mk("addr", 8), mk("all", 100)
	time.Sleep(2300 * time.Millisecond)
	return h, user, addr, all
}

// TestAllowAllOrNothing checks that a call which one limit denies takes nothing
// from the others, and that the answer is that of the narrowest limit.
func TestAllowAllOrNothing(t *testing.T) {
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				rdb := b.Client(nil)
				h, user, addr, all := three(t, b, mode, nil)
				call := func(u string) hybridlimit.Result {
					t.Helper()
					res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: all, Key: "*", N: 1}, hybridlimit.Ask{Limiter: user, Key: u, N: 1}, hybridlimit.Ask{Limiter: addr, Key: "::1", N: 1})
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(20 * time.Millisecond)
					return res
				}
				for i := range 5 {
					if res := call("ann"); !res.Allowed || res.Policy != "user" || res.Remaining != int64(4-i) || res.Limit != 5 {
						t.Errorf("call %d: %+v", i, res)
					}
				}
				for range 10 {
					if res := call("ann"); res.Allowed || res.Policy != "user" || res.RetryAfter <= 0 {
						t.Errorf("ann, after five calls: %+v", res)
					}
				}
				for i := range 6 {
					if res := call("bob"); res.Allowed != (i < 3) || res.Policy != "addr" && i > 0 {
						t.Errorf("call %d of bob: %+v", i, res)
					}
				}
				if err := h.Shutdown(t.Context()); err != nil {
					t.Fatal(err)
				}
				var lost int64
				for l, keys := range map[*hybrid.Limiter][]string{user: {"ann", "bob"}, addr: {"::1"}, all: {"*"}} {
					s := l.Stats()
					if s.Admitted != 8 || debited(t, rdb, map[*hybrid.Limiter]string{user: "user", addr: "addr", all: "all"}[l], keys...) != balance(t, s) {
						t.Errorf("admitted %d, want 8, and as much debited as the limiter knows: %+v", s.Admitted, s)
					}
					lost += s.Lost
				}
				if lost > 3 { // a unit is lost if another limit denies the call that asked for it
					t.Errorf("%d units lost", lost)
				}
			})
		})
	}
}

func TestAllowAllRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		_, user, _, _ := three(t, b, hybrid.ModeAuto, nil)
		stranger := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Name: "stranger"})
		for name, tc := range map[string]struct {
			asks []hybridlimit.Ask
			want error
		}{
			"no asks":       {nil, hybridlimit.ErrInvalid},
			"no limiter":    {[]hybridlimit.Ask{{Key: "k", N: 1}}, hybridlimit.ErrInvalid},
			"another hub":   {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 1}, {Limiter: stranger, Key: "k", N: 1}}, hybridlimit.ErrInvalid},
			"no cost":       {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 0}}, hybridlimit.ErrCost},
			"no key":        {[]hybridlimit.Ask{{Limiter: user, Key: "", N: 1}}, hybridlimit.ErrEmptyKey},
			"cost overflow": {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 1 << 62}, {Limiter: user, Key: "k", N: 1 << 62}, {Limiter: user, Key: "k", N: 1 << 62}}, hybridlimit.ErrCost},
		} {
			if res, err := hybridlimit.AllowAll(t.Context(), tc.asks...); !errors.Is(err, tc.want) || res.Allowed {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "k", N: 3}, hybridlimit.Ask{Limiter: user, Key: "k", N: 3}); err != nil || res.Allowed || res.RetryAfter != hybridlimit.Never {
			t.Errorf("3 + 3 units of one key with a burst of 5: %+v, %v", res, err)
		}
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "k", N: 2}, hybridlimit.Ask{Limiter: user, Key: "k", N: 3}); err != nil || !res.Allowed || res.Remaining != 0 {
			t.Errorf("2 + 3 units of one key with a burst of 5: %+v, %v", res, err)
		}
		user.Close()
		if _, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "k", N: 1}); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestAllowAllOfWhatRedisDecides checks that limits which Redis decides are
// asked last, and get their units back if another limit denies.
func TestAllowAllOfWhatRedisDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		rdb := b.Client(nil)
		h := newHub(t, rdb, hybrid.HubConfig{})
		user := add(t, h, still(100), hybrid.Config{Name: "user"}) // loses the units of calls that are denied
		exact := add(t, h, still(7), hybrid.Config{Name: "exact", Mode: hybrid.ModeExact})
		log := add(t, h, hybridlimit.SlidingLog(4, time.Hour), hybrid.Config{Name: "log"})
		all := func(n int64) hybridlimit.Result {
			return must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: log, Key: "k", N: n}, hybridlimit.Ask{Limiter: user, Key: "k", N: 1}, hybridlimit.Ask{Limiter: exact, Key: "k", N: n}))
		}
		for i := range 3 {
			if res := all(1); !res.Allowed || res.Policy == "" {
				t.Fatalf("call %d: %+v", i, res)
			}
		}
		if res := all(1); !res.Allowed || res.Policy != "log" || res.Remaining != 0 { // the narrowest
			t.Fatalf("%+v", res)
		}
		for range 3 {
			if res := all(1); res.Allowed || res.Policy != "log" || res.RetryAfter == 0 || res.RetryAfter > time.Hour {
				t.Fatalf("%+v", res)
			}
		}
		if res := all(5); res.Allowed || res.Policy != "log" || res.RetryAfter != hybridlimit.Never || res.Remaining != 0 || res.ResetAfter == 0 {
			t.Fatalf("%+v", res)
		}
		must(t)(log.Refund(t.Context(), "k", 4))
		for range 3 { // exact has 3 units left, and log is asked first
			if res := all(4); res.Allowed || res.Policy != "exact" {
				t.Fatalf("%+v", res)
			}
		}
		if res := all(3); !res.Allowed || res.Policy != "exact" || res.Remaining != 0 {
			t.Fatalf("%+v", res)
		}
		if log, err := log.History(t.Context(), "k"); err != nil || len(log) != 1 || log[0].Units != 3 {
			t.Errorf("history %v, %v", log, err)
		}
		shutdown(t, user, exact, log)
		for i, l := range []*hybrid.Limiter{user, exact} {
			s := l.Stats()
			if got, want := debited(t, rdb, [2]string{"user", "exact"}[i], "k"), balance(t, s); got != want || l == exact && s.Lost != 0 {
				t.Errorf("Redis debited %d, the fleet knows of %d: %+v", got, want, s)
			}
		}
	})
}

// TestAllowAllShadow checks that a shadow limit denies no call, and counts the
// calls that it would deny.
func TestAllowAllShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		_, user, addr, _ := three(t, b, hybrid.ModeAuto, func(c *hybrid.Config) { c.Shadow = c.Name == "user" })
		shadowed := 0
		for i := range 12 {
			res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "ann", N: 1}, hybridlimit.Ask{Limiter: addr, Key: "::1", N: 1})
			if err != nil || res.Allowed != (i < 8) {
				t.Errorf("call %d: %+v, %v", i, res, err)
			}
			if res.Shadowed {
				shadowed++
			}
			time.Sleep(20 * time.Millisecond)
		}
		if s := user.Stats(); s.Admitted != 5 || shadowed != 3 {
			t.Errorf("%d calls shadowed, want 3, and 5 units admitted; %+v", shadowed, s)
		}
	})
}

// TestAllowAllWithoutRedis checks that without Redis each limit uses its
// fallback, still all or nothing.
func TestAllowAllWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		_, user, addr, all := three(t, b, hybrid.ModeAuto, func(c *hybrid.Config) { c.MaxWait = -1 })
		b.Kill()
		allowed := 0
		for range 60 {
			res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "ann", N: 1}, hybridlimit.Ask{Limiter: addr, Key: "::1", N: 1}, hybridlimit.Ask{Limiter: all, Key: "*", N: 1})
			if err != nil {
				t.Fatal(err)
			}
			if res.Allowed {
				allowed++
			}
			time.Sleep(50 * time.Millisecond)
		}
		for _, l := range []*hybrid.Limiter{user, addr, all} {
			if s := l.Stats(); s.Admitted != int64(allowed) || allowed != 5 {
				t.Errorf("%d calls allowed, want 5; %+v", allowed, s)
			}
			balance(t, l.Stats())
		}
	})
}
