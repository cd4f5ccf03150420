package global_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// trio is a limit per user, one per address, and one for all.
type trio struct{ user, addr, all *global.Limiter }

func newTrio(t testing.TB, rdb redis.UniversalClient, cfg global.Config) trio {
	mk := func(name string, burst int64) *global.Limiter {
		cfg := cfg
		cfg.Name = name
		return newLimiter(t, rdb, still(burst), cfg)
	}
	return trio{mk("user", 5), mk("addr", 8), mk("all", 100)}
}

func (l trio) asks(user string, n int64) []hybridlimit.Ask {
	return []hybridlimit.Ask{{Limiter: l.all, Key: "*", N: n}, {Limiter: l.user, Key: user, N: n}, {Limiter: l.addr, Key: "::1", N: n}}
}

// tagsOf returns the number of tags over which keys are spread.
func tagsOf(tags int, keys ...string) int {
	names, seen := lua.Names{Prefix: "hl", Tags: tags}, map[int]bool{}
	for _, k := range keys {
		seen[names.Tag(k)] = true
	}
	return len(seen)
}

// left returns the units that a limiter has left of a key.
func left(t testing.TB, l *global.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// TestAllowAllOrNothing checks that a denial by one limit takes nothing from the others,
// in one message or in several. The answer is that of the narrowest limit.
func TestAllowAllOrNothing(t *testing.T) {
	for _, tags := range []int{1, 16} {
		for name, functions := range withAndWithout {
			t.Run(fmt.Sprintf("%d tags/%s", tags, name), func(t *testing.T) {
				rdb := redistest.New(t).Client(t)
				if functions {
					redistest.NeedFunctions(t, rdb)
				}
				allOrNothing(t, rdb, global.Config{Tags: tags, Timeout: 30 * time.Second, Functions: functions})
			})
		}
		t.Run(fmt.Sprintf("%d tags/miniredis", tags), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				allOrNothing(t, redistest.NewBubble(t).Client(nil), global.Config{Tags: tags})
			})
		})
	}
}

func allOrNothing(t *testing.T, rdb redis.UniversalClient, cfg global.Config) {
	l := newTrio(t, rdb, cfg)
	call := func(u string, n int64) hybridlimit.Result {
		t.Helper()
		res, err := hybridlimit.AllowAll(t.Context(), l.asks(u, n)...)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for i := range int64(5) {
		if res := call("ann", 1); !res.Allowed || res.Policy != "user" || res.Remaining != 4-i || res.Limit != 5 || res.Granted != 1 || res.Source != hybridlimit.SourceRedis {
			t.Errorf("call %d: %+v", i, res)
		}
	}
	for range 10 {
		if res := call("ann", 1); res.Allowed || res.Policy != "user" || res.RetryAfter < 59*time.Minute || res.RetryAfter > time.Hour || res.Granted != 0 {
			t.Errorf("the sixth of ann: %+v", res)
		}
	}
	if res := call("bob", 4); res.Allowed || res.Policy != "addr" {
		t.Errorf("four of bob: %+v", res)
	}
	if res := call("bob", 6); res.Allowed || res.Policy != "user" || res.RetryAfter != hybridlimit.Never || res.Source != hybridlimit.SourceStatic {
		t.Errorf("six of five: %+v", res)
	}
	if res := call("bob", 3); !res.Allowed || res.Policy != "addr" || res.Remaining != 0 {
		t.Errorf("three of bob: %+v", res)
	}
	for key, want := range map[string]int64{"ann": 0, "bob": 2} {
		if got := left(t, l.user, key); got != want {
			t.Errorf("%s has %d left, want %d", key, got, want)
		}
	}
	if a, b := left(t, l.addr, "::1"), left(t, l.all, "*"); a != 0 || b != 92 {
		t.Errorf("%d and %d are left", a, b)
	}
}

// TestAllowAllMessages checks that a call costs one message on a single Redis, and one for each tag on a cluster. There, after a
// denial, each other message costs one more.
func TestAllowAllMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bubble := redistest.NewBubble(t)
		for _, tc := range []struct {
			cfg   global.Config
			apart bool
			tags  int
		}{
			{global.Config{Tags: 1}, true, 1},
			{global.Config{Prefix: "s", TagBy: func(string) string { return "tenant" }}, true, 1},
			{global.Config{Prefix: "d"}, true, tagsOf(16, "*", "ann", "::1")},
			{global.Config{Prefix: "e"}, false, 1},
		} {
			link := bubble.Link()
			l := newTrio(t, link.Client(nil), tc.cfg)
			for _, one := range []*global.Limiter{l.user, l.addr, l.all} {
				if tc.apart {
					one.Apart()
				}
			}
			messages := func() int { return link.Count("EVALSHA").Seen }
			if _, err := hybridlimit.AllowAll(t.Context(), l.asks("ann", 1)...); err != nil {
				t.Fatal(err)
			}
			before := messages()
			if res, err := hybridlimit.AllowAll(t.Context(), l.asks("ann", 4)...); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			granted := messages() - before
			if res, err := hybridlimit.AllowAll(t.Context(), l.asks("ann", 1)...); err != nil || res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			denied := messages() - before - granted
			if granted != tc.tags || tc.tags == 1 && denied != 1 || denied > 2*tc.tags {
				t.Errorf("%+v: %d messages when granted, %d when denied", tc.cfg, granted, denied)
			}
		}
	})
}

// TestAllowAllOfOneIsAllowN checks that a call under one limit gives the answer of
// AllowN, and that two asks for one key count as their sum, after any history.
func TestAllowAllOfOneIsAllowN(t *testing.T) {
	for _, limit := range algorithms {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := redistest.NewBubble(t).Client(nil)
				one := newLimiter(t, rdb, limit, global.Config{Prefix: "one"})
				all := newLimiter(t, rdb, limit, global.Config{Prefix: "all"})
				rng := rand.New(rand.NewPCG(1, 2))
				denied := 0
				for i := range 150 {
					time.Sleep(time.Duration(rng.Int64N(int64(limit.Period)/limit.Rate)/1000) * time.Microsecond)
					n := 1 + rng.Int64N(limit.BurstSize()+1)/(1+rng.Int64N(3))
					want, err := one.AllowN(t.Context(), "k", n)
					if err != nil {
						t.Fatal(err)
					}
					asks := []hybridlimit.Ask{{Limiter: all, Key: "k", N: n}}
					if n > 1 && rng.IntN(2) == 0 {
						asks = []hybridlimit.Ask{{Limiter: all, Key: "k", N: 1}, {Limiter: all, Key: "k", N: n - 1}}
					}
					got, err := hybridlimit.AllowAll(t.Context(), asks...)
					if err != nil || got != want {
						t.Fatalf("call %d of %d units: %+v, %v, want %+v", i, n, got, err, want)
					}
					if !got.Allowed {
						denied++
					}
				}
				if denied == 0 || denied == 150 {
					t.Errorf("%d of 150 denied", denied)
				}
			})
		})
	}
}

func TestAllowAllRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bubble := redistest.NewBubble(t)
		rdb := bubble.Client(nil)
		user := newLimiter(t, rdb, still(5), global.Config{Name: "user"})
		namesake := newLimiter(t, rdb, still(9), global.Config{Name: "user"})
		twin := newLimiter(t, rdb, still(5), global.Config{Name: "user"})
		stranger := newLimiter(t, bubble.Client(nil), still(5), global.Config{Name: "stranger"})
		many := make([]hybridlimit.Ask, wire.MaxOps+1)
		for i := range many {
			many[i] = hybridlimit.Ask{Limiter: user, Key: fmt.Sprint("k", i), N: 1}
		}
		for name, tc := range map[string]struct {
			asks []hybridlimit.Ask
			want error
			says string
		}{
			"nothing":       {nil, hybridlimit.ErrInvalid, "asks is empty, but needs at least one ask"},
			"nobody":        {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 1}, {Key: "k", N: 1}}, hybridlimit.ErrInvalid, "asks[1].Limiter (<nil>) must not be nil"},
			"a stranger":    {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 1}, {Limiter: stranger, Key: "k", N: 1}}, hybridlimit.ErrInvalid, `asks[1].Limiter ("stranger") must use the same Redis client as the limiter "user"`},
			"two limits":    {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 1}, {Limiter: namesake, Key: "k", N: 1}}, hybridlimit.ErrInvalid, `asks[1].Limiter ("user") must have the same limit`},
			"no cost":       {[]hybridlimit.Ask{{Limiter: user, Key: "j", N: 1}, {Limiter: user, Key: "k", N: 0}}, hybridlimit.ErrCost, "asks[1]"},
			"no key":        {[]hybridlimit.Ask{{Limiter: user, Key: "", N: 1}}, hybridlimit.ErrEmptyKey, "asks[0]"},
			"cost overflow": {[]hybridlimit.Ask{{Limiter: user, Key: "k", N: 1 << 62}, {Limiter: user, Key: "k", N: 1 << 62}}, hybridlimit.ErrCost, "asks[1]"},
			"too many":      {many, hybridlimit.ErrInvalid, "65 limits in one call, but at most 64 are possible"},
		} {
			res, err := hybridlimit.AllowAll(t.Context(), tc.asks...)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || res != (hybridlimit.Result{}) {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "k", N: 3}, hybridlimit.Ask{Limiter: twin, Key: "k", N: 3}); err != nil || res.Allowed || res.RetryAfter != hybridlimit.Never {
			t.Errorf("3 and 3 of one key of 5: %+v, %v", res, err)
		}
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "k", N: 2}, hybridlimit.Ask{Limiter: twin, Key: "k", N: 3}); err != nil || !res.Allowed || res.Remaining != 0 || res.Granted != 5 {
			t.Errorf("2 and 3 of one key of 5: %+v, %v", res, err)
		}
		if res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: user, Key: "a", N: 2}, hybridlimit.Ask{Limiter: user, Key: "b", N: 3}); err != nil || !res.Allowed || res.Remaining != 2 {
			t.Errorf("two keys of one limiter: %+v, %v", res, err)
		}
		user.Close()
		if _, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: twin, Key: "k", N: 1}, hybridlimit.Ask{Limiter: user, Key: "k", N: 1}); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestAllowAllStatic checks that static limits cost no message. Beside other limits,
// Unlimited admits, and Blocked denies before Redis is asked.
func TestAllowAllStatic(t *testing.T) {
	inBubble(t, still(5), global.Config{}, defaults, func(t *testing.T, s *scene) {
		rdb := s.link.Client(nil)
		user := newLimiter(t, rdb, still(5), global.Config{Name: "user"})
		open := newLimiter(t, rdb, hybridlimit.Unlimited(), global.Config{Name: "open"})
		shut := newLimiter(t, rdb, hybridlimit.Blocked(), global.Config{Name: "shut"})
		ask := func(ls ...*global.Limiter) hybridlimit.Result {
			t.Helper()
			var asks []hybridlimit.Ask
			for _, l := range ls {
				asks = append(asks, hybridlimit.Ask{Limiter: l, Key: "k", N: 2})
			}
			res, err := hybridlimit.AllowAll(t.Context(), asks...)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		if res := ask(open); !res.Allowed || res.Policy != "open" || res.Granted != 2 || res.Source != hybridlimit.SourceStatic {
			t.Errorf("unlimited: %+v", res)
		}
		if res := ask(user, shut, open); res.Allowed || res.Policy != "shut" || res.RetryAfter != hybridlimit.Never {
			t.Errorf("blocked: %+v", res)
		}
		if n := s.link.Counts()["EVALSHA"].Seen; n != 0 {
			t.Errorf("%d messages", n)
		}
		if res := ask(open, user); !res.Allowed || res.Policy != "user" || res.Remaining != 3 {
			t.Errorf("beside unlimited: %+v", res)
		}
	})
}

// TestAllowAllDelay checks that the result has the longest delay, or the longest wait of
// a denial.
func TestAllowAllDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.NewBubble(t).Client(nil)
		slow := newLimiter(t, rdb, hybridlimit.LeakyQueue(1, time.Second, 9), global.Config{Name: "slow"})
		fast := newLimiter(t, rdb, hybridlimit.LeakyQueue(10, time.Second, 3), global.Config{Name: "fast"})
		for i := range 4 {
			res, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: slow, Key: "k", N: 1}, hybridlimit.Ask{Limiter: fast, Key: "k", N: 1})
			if i < 3 {
				if want := time.Duration(i) * time.Second; err != nil || !res.Allowed || res.Delay != want || res.Policy != "fast" {
					t.Errorf("call %d: %+v, %v, want a delay of %v", i, res, err, want)
				}
			} else if err != nil || res.Allowed || res.Policy != "fast" || res.RetryAfter != 100*time.Millisecond || res.Delay != 0 {
				t.Errorf("call %d: %+v, %v", i, res, err)
			}
		}
	})
}
