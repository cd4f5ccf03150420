package conformance_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/local"
)

// kind makes limiters of one package. Those of one call of place join each other.
type kind struct {
	name  string
	place func(t *testing.T, rdb redis.UniversalClient) (limiter func(name string, limit hybridlimit.Limit, limitFor func(string) hybridlimit.Limit) hybridlimit.Limiter)
}

func must(t *testing.T, l hybridlimit.Limiter, err error) hybridlimit.Limiter {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var kinds = []kind{
	{"local", func(t *testing.T, _ redis.UniversalClient) func(string, hybridlimit.Limit, func(string) hybridlimit.Limit) hybridlimit.Limiter {
		return func(name string, limit hybridlimit.Limit, limitFor func(string) hybridlimit.Limit) hybridlimit.Limiter {
			l, err := local.New(limit, local.Config{Name: name, LimitFor: limitFor})
			return must(t, l, err)
		}
	}},
	{"global", func(t *testing.T, rdb redis.UniversalClient) func(string, hybridlimit.Limit, func(string) hybridlimit.Limit) hybridlimit.Limiter {
		return func(name string, limit hybridlimit.Limit, limitFor func(string) hybridlimit.Limit) hybridlimit.Limiter {
			l, err := global.New(rdb, limit, global.Config{Name: name, LimitFor: limitFor})
			return must(t, l, err)
		}
	}},
	{"hybrid", func(t *testing.T, rdb redis.UniversalClient) func(string, hybridlimit.Limit, func(string) hybridlimit.Limit) hybridlimit.Limiter {
		h, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return func(name string, limit hybridlimit.Limit, limitFor func(string) hybridlimit.Limit) hybridlimit.Limiter {
			l, err := h.Limiter(limit, hybrid.Config{Name: name, LimitFor: limitFor, MaxWait: time.Second})
			return must(t, l, err)
		}
	}},
}

// TestAllowJointIsAllOrNothing checks that AllowJoint takes units of all limits or of
// none.
func TestAllowJointIsAllOrNothing(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := redistest.NewBubble(t).Client(nil)
				limiter := k.place(t, rdb)
				wide, narrow := limiter("wide", hybridlimit.PerHour(5), nil), limiter("narrow", hybridlimit.PerHour(2), nil)
				joint := wide.(adapter.Joint)
				if !joint.Joins(narrow) || !joint.Joins(wide) {
					t.Error("limiters of one place do not join")
				}
				call := func(n int64) hybridlimit.Result {
					t.Helper()
					res, err := joint.AllowJoint(t.Context(), []hybridlimit.Ask{{Limiter: wide, Key: "all", N: n}, {Limiter: narrow, Key: "ann", N: n}})
					if err != nil {
						t.Fatal(err)
					}
					return res
				}
				if res := call(2); !res.Allowed || res.Policy != "narrow" {
					t.Errorf("two of two: %+v", res)
				}
				for range 3 {
					if res := call(1); res.Allowed || res.Policy != "narrow" || res.RetryAfter <= 0 {
						t.Errorf("one of none: %+v", res)
					}
				}
				if res, err := wide.AllowN(t.Context(), "all", 3); err != nil || !res.Allowed {
					t.Errorf("AllowN of the three units that the wide limit has left: %+v, %v", res, err)
				}
			})
		})
	}
}

// TestAllowJointTellsOfEach checks that each ask gets the answer of its own limit. The
// cases: one limiter under two keys, two asks for one key, static limits, and denials by
// some limits only.
func TestAllowJointTellsOfEach(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := k.place(t, redistest.NewBubble(t).Client(nil))
				five, two := limiter("five", hybridlimit.PerHour(5), nil), limiter("two", hybridlimit.PerHour(2), nil)
				free, never := limiter("free", hybridlimit.Unlimited(), nil), limiter("never", hybridlimit.Blocked(), nil)
				joint := five.(adapter.Joint)
				call := func(asks ...hybridlimit.Ask) (hybridlimit.Result, []hybridlimit.Ask) {
					t.Helper()
					for i := range asks {
						asks[i].Result = hybridlimit.Result{Policy: "stale", Allowed: true, Source: hybridlimit.SourceLocal}
					}
					res, err := joint.AllowJoint(t.Context(), asks)
					if err != nil {
						t.Fatal(err)
					}
					return res, asks
				}
				ask := func(l hybridlimit.Limiter, key string, n int64) hybridlimit.Ask {
					return hybridlimit.Ask{Limiter: l, Key: key, N: n}
				}
				res, asks := call(ask(five, "a", 1), ask(five, "b", 2), ask(two, "a", 1), ask(two, "a", 1), ask(free, "a", 7))
				if !res.Allowed || res.Policy != "two" {
					t.Errorf("%+v", res)
				}
				for i, want := range []struct {
					policy        string
					granted, left int64
				}{{"five", 1, 4}, {"five", 2, 3}, {"two", 1, 0}, {"two", 1, 0}} {
					if got := asks[i].Result; !got.Allowed || got.Policy != want.policy || got.Granted != want.granted || got.Remaining != want.left {
						t.Errorf("ask %d: %+v, want %+v", i, got, want)
					}
				}
				if got := asks[4].Result; !got.Allowed || got.Granted != 7 || got.Source != hybridlimit.SourceStatic {
					t.Errorf("%+v", got)
				}
				for i, tc := range []struct {
					asks   []hybridlimit.Ask
					denied int
				}{
					{[]hybridlimit.Ask{ask(five, "a", 1), ask(five, "b", 4), ask(free, "a", 1)}, 1},
					{[]hybridlimit.Ask{ask(five, "a", 1), ask(two, "a", 1), ask(free, "a", 1)}, 1},
					{[]hybridlimit.Ask{ask(five, "a", 1), ask(two, "b", 3)}, 1},
					{[]hybridlimit.Ask{ask(never, "a", 1), ask(five, "a", 1)}, 0},
				} {
					res, asks := call(tc.asks...)
					if res.Allowed {
						t.Errorf("call %d: %+v", i, res)
					}
					for j, a := range asks {
						if got := a.Result; j == tc.denied && got != res || j != tc.denied && got != (hybridlimit.Result{}) {
							t.Errorf("call %d, ask %d: %+v, result of the call: %+v", i, j, got, res)
						}
					}
				}
				asks = []hybridlimit.Ask{ask(five, "a", 1), ask(five, "", 1), ask(never, "a", 1)}
				asks[0].Result.Allowed = true
				if _, err := joint.AllowJoint(t.Context(), asks); !errors.Is(err, hybridlimit.ErrEmptyKey) {
					t.Errorf("%v", err)
				}
				for i, a := range asks {
					if a.Result != (hybridlimit.Result{}) {
						t.Errorf("ask %d has a result although the call failed: %+v", i, a.Result)
					}
				}
			})
		})
	}
}

// TestLimitersThatDoNotJoin checks that a limiter joins exactly the limiters that
// AllowAll can ask with it.
func TestLimitersThatDoNotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, other := redistest.NewBubble(t).Client(nil), redistest.NewBubble(t).Client(nil)
		var all []hybridlimit.Limiter
		for _, k := range kinds {
			all = append(all, k.place(t, rdb)("api", hybridlimit.PerSecond(10), nil), k.place(t, other)("api", hybridlimit.PerSecond(10), nil))
		}
		for i, l := range all {
			joint := l.(adapter.Joint)
			for j, o := range all {
				want := i == j || i < 2 && j < 2 // local joins any local
				if got := joint.Joins(o); got != want {
					t.Errorf("%T joins %T (%d, %d): %t", l, o, i, j, got)
				}
				if want {
					continue
				}
				res, err := joint.AllowJoint(t.Context(), []hybridlimit.Ask{{Limiter: l, Key: "k", N: 1}, {Limiter: o, Key: "k", N: 1}})
				if !errors.Is(err, hybridlimit.ErrInvalid) || res.Allowed {
					t.Errorf("%T with %T: %+v, %v", l, o, res, err)
				}
			}
			if joint.Joins(nil) {
				t.Errorf("%T joins nil", l)
			}
			if _, err := joint.AllowJoint(context.Background(), nil); !errors.Is(err, hybridlimit.ErrInvalid) {
				t.Errorf("%T, no asks: %v", l, err)
			}
		}
	})
}

// TestNilLimitersAreNamed checks that a nil limiter, as an interface or as a pointer in
// it, gives an InvalidError that names the ask. Nothing is taken from the other limits.
func TestNilLimitersAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.NewBubble(t).Client(nil)
		nils := map[string]hybridlimit.Limiter{
			"nil": nil, "local": (*local.Limiter)(nil), "global": (*global.Limiter)(nil), "hybrid": (*hybrid.Limiter)(nil),
		}
		for _, k := range kinds {
			l := k.place(t, rdb)("api", hybridlimit.PerHour(10), nil)
			if r, ok := l.(interface{ Ready(context.Context) error }); ok {
				if err := r.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			joint := l.(adapter.Joint)
			for name, none := range nils {
				if joint.Joins(none) {
					t.Errorf("%s joins a limiter that is nil (%s)", k.name, name)
				}
				_, err := joint.AllowJoint(t.Context(), []hybridlimit.Ask{{Limiter: l, Key: "k", N: 5}, {Limiter: none, Key: "k", N: 1}})
				if !names(err, "asks[1].Limiter") {
					t.Errorf("%s with nil (%s): %v", k.name, name, err)
				}
			}
			if _, err := hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: "k", N: 5}, hybridlimit.Ask{Key: "k", N: 1}); !names(err, "asks[1].Limiter") {
				t.Errorf("%s: AllowAll: %v", k.name, err)
			}
			peek := l.(interface {
				Peek(ctx context.Context, key string) (hybridlimit.Result, error)
			}).Peek
			if res, err := peek(t.Context(), "k"); err != nil || res.Remaining != 10 {
				t.Errorf("%s: Peek after the failed calls: %+v, %v, want 10 remaining", k.name, res, err)
			}
		}
	})
}

// names reports whether an error is an *InvalidError of one field.
func names(err error, field string) bool {
	var invalid *hybridlimit.InvalidError
	return errors.As(err, &invalid) && len(invalid.Violations) == 1 && invalid.Violations[0].Field == field
}

// TestAllowAllWithoutALimiterThatJoins checks the error of AllowAll if the limiter of the
// first ask is nil or no Joint.
func TestAllowAllWithoutALimiterThatJoins(t *testing.T) {
	if _, err := hybridlimit.AllowAll(t.Context()); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("no asks: %v", err)
	}
	for name, first := range map[string]hybridlimit.Limiter{
		"nil": nil, "a nil pointer": (*local.Limiter)(nil), "alone": struct{ hybridlimit.Limiter }{},
	} {
		asks := []hybridlimit.Ask{{Limiter: first, Key: "k", N: 1, Result: hybridlimit.Result{Allowed: true}}}
		if _, err := hybridlimit.AllowAll(t.Context(), asks...); !names(err, "asks[0].Limiter") || asks[0].Result != (hybridlimit.Result{}) {
			t.Errorf("%s: %v, %+v", name, err, asks[0].Result)
		}
	}
}

// TestPolicyIsWhatIsEnforced checks that Policy follows SetLimit and LimitFor.
func TestPolicyIsWhatIsEnforced(t *testing.T) {
	base, own, next := hybridlimit.PerSecond(10), hybridlimit.PerSecond(100), hybridlimit.PerSecond(20)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := k.place(t, redistest.NewBubble(t).Client(nil))
				plain := limiter("plain", base, nil)
				tiers := limiter("tiers", base, func(key string) hybridlimit.Limit {
					if key == "pro" {
						return own
					}
					return base
				})
				expect := func(l hybridlimit.Limiter, key, name string, limit hybridlimit.Limit) {
					t.Helper()
					got := l.(adapter.Describer).Policy(key)
					if got != (hybridlimit.Policy{Name: name, Limit: limit}) || l.(adapter.Describer).Name() != name {
						t.Errorf("%s: %+v, want %s", key, got, limit)
					}
					if res, err := l.Allow(t.Context(), key); err != nil || res.Limit != limit.BurstSize() || res.Policy != name {
						t.Errorf("%s: the limiter enforces %d of %q, %v", key, res.Limit, res.Policy, err)
					}
				}
				expect(plain, "ann", "plain", base)
				expect(tiers, "ann", "tiers", base)
				expect(tiers, "pro", "tiers", own)
				if err := plain.(interface {
					SetLimit(hybridlimit.Limit) error
				}).SetLimit(next); err != nil {
					t.Fatal(err)
				}
				expect(plain, "ann", "plain", next)
			})
		})
	}
}

// TestPolicyOfAShadowLimiter checks that the policy of a limiter in shadow has Shadow
// set.
func TestPolicyOfAShadowLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := hybrid.New(redistest.NewBubble(t).Client(nil), hybridlimit.PerSecond(1), hybrid.Config{
			Name: "dark", Shadow: true, Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if p := l.Policy("k"); !p.Shadow || p.Name != "dark" {
			t.Errorf("%+v", p)
		}
		live, err := hybrid.New(redistest.NewBubble(t).Client(nil), hybridlimit.PerSecond(1), hybrid.Config{
			Name: "live", Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer live.Close()
		for _, to := range []hybrid.Switch{hybrid.SwitchNormal, hybrid.SwitchShadow, hybrid.SwitchNormal} {
			if err := live.SetSwitch(to); err != nil {
				t.Fatal(err)
			}
			if p := live.Policy("k"); p.Shadow != (to == hybrid.SwitchShadow) {
				t.Errorf("%v: %+v", to, p)
			}
		}
	})
}
