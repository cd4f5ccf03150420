package hybridlimit_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// counter is an Acquirer with n permits for all keys. It notes its calls in log.
type counter struct {
	hybridlimit.Limiter
	name string
	n    int64
	held int64
	err  error
	log  *[]string
}

func (d *counter) Name() string { return d.name }

func (d *counter) Policy(string) hybridlimit.Policy {
	return hybridlimit.Policy{Name: d.name, Limit: hybridlimit.Concurrent(d.n)}
}

func (d *counter) Acquire(ctx context.Context, key string) (hybridlimit.Permit, hybridlimit.Result, error) {
	return d.AcquireN(ctx, key, 1)
}

func (d *counter) AcquireN(_ context.Context, key string, n int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	*d.log = append(*d.log, d.name+" "+key)
	switch {
	case n < 1:
		return hybridlimit.Permit{}, hybridlimit.Result{}, hybridlimit.ErrCost
	case d.err != nil:
		return hybridlimit.Permit{}, hybridlimit.Result{}, d.err
	case n > d.n-d.held:
		return hybridlimit.Permit{}, hybridlimit.Result{Limit: d.n, Remaining: d.n - d.held, RetryAfter: 1, Policy: d.name, Source: hybridlimit.SourceLocal}, nil
	}
	d.held += n
	return hybridlimit.NewPermit(d, n), hybridlimit.Result{Allowed: true, Granted: n, Limit: d.n, Remaining: d.n - d.held, Policy: d.name, Source: hybridlimit.SourceLocal}, nil
}

func (d *counter) ReleasePermits(n int64) { d.held -= n }

// rate returns a rate limiter of n units.
func rate(t *testing.T, name string, n int64) *local.Limiter {
	t.Helper()
	l, err := local.New(hybridlimit.PerDay(n), local.Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// used returns the units that a key has used.
func used(t *testing.T, l *local.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit - res.Remaining
}

func TestAllowAllHoldsPermits(t *testing.T) {
	var log []string
	user, all := &counter{name: "user", n: 3, log: &log}, &counter{name: "all", n: 10, log: &log}
	calls := rate(t, "calls", 5)
	asks := []hybridlimit.Ask{
		{Limiter: user, Key: "ann", N: 1},
		{Limiter: calls, Key: "ann", N: 2},
		{Limiter: all, Key: "x", N: 2},
		{Limiter: user, Key: "ann", N: 1},
	}
	res, err := hybridlimit.AllowAll(t.Context(), asks...)
	if err != nil || !res.Allowed || res.Policy != "user" || res.Remaining != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := strings.Join(log, ", "); got != "all x, user ann" {
		t.Errorf("asked: %s", got)
	}
	if user.held != 2 || all.held != 2 || used(t, calls, "ann") != 2 {
		t.Errorf("%d and %d permits, %d units", user.held, all.held, used(t, calls, "ann"))
	}
	for i, policy := range []string{"user", "calls", "all", "user"} {
		if got := asks[i].Result; !got.Allowed || got.Policy != policy {
			t.Errorf("ask %d: %+v", i, got)
		}
	}
	for _, a := range asks {
		a.Permit.Release()
		a.Permit.Release()
	}
	if user.held != 0 || all.held != 0 {
		t.Errorf("%d and %d permits are held at the end", user.held, all.held)
	}
	if asks[1].Permit != (hybridlimit.Permit{}) || asks[3].Permit != (hybridlimit.Permit{}) {
		t.Error("a rate, or the second ask of a key, has a permit")
	}
}

// A denial or an error of one limit takes nothing from the others.
func TestAllowAllReleasesPermits(t *testing.T) {
	var log []string
	failed := errors.New("failed")
	for name, tc := range map[string]struct {
		prepare func(a, b *counter)
		cost    int64
		denied  int // the ask that denies; -1: an error
		want    error
	}{
		"a rate denies":            {func(a, b *counter) {}, 6, 2, nil},
		"the second permit denies": {func(a, b *counter) { b.n = 0 }, 1, 1, nil},
		"the first permit denies":  {func(a, b *counter) { a.n = 0 }, 1, 0, nil},
		"the second permit fails":  {func(a, b *counter) { b.err = failed }, 1, -1, failed},
		"a rate fails":             {func(a, b *counter) {}, 0, -1, hybridlimit.ErrCost},
	} {
		a, b, calls := &counter{name: "a", n: 3, log: &log}, &counter{name: "b", n: 3, log: &log}, rate(t, "calls", 5)
		tc.prepare(a, b)
		held := hybridlimit.NewPermit(&holder{}, 1)
		asks := []hybridlimit.Ask{{Limiter: a, Key: "k", N: 1, Permit: held}, {Limiter: b, Key: "k", N: 1}, {Limiter: calls, Key: "k", N: tc.cost, Permit: held}}
		res, err := hybridlimit.AllowAll(t.Context(), asks...)
		if !errors.Is(err, tc.want) || res.Allowed {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		if a.held != 0 || b.held != 0 || used(t, calls, "k") != 0 {
			t.Errorf("%s: %d and %d permits, %d units", name, a.held, b.held, used(t, calls, "k"))
		}
		for i := range asks {
			if asks[i].Permit != (hybridlimit.Permit{}) || asks[i].Result != (hybridlimit.Result{}) != (i == tc.denied) || asks[i].Result.Allowed {
				t.Errorf("%s: ask %d: %+v", name, i, asks[i])
			}
		}
	}
}

func TestAllowAllAddsPermitsUp(t *testing.T) {
	var log []string
	d := &counter{name: "d", n: 10, log: &log}
	for _, tc := range []struct {
		one, two int64
		allowed  bool
		err      error
	}{
		{4, 6, true, nil},
		{4, 7, false, nil},
		{math.MaxInt64, math.MaxInt64, false, nil},
		{-1, 5, false, hybridlimit.ErrCost},
		{5, -1, false, hybridlimit.ErrCost},
	} {
		asks := []hybridlimit.Ask{{Limiter: d, Key: "k", N: tc.one}, {Limiter: d, Key: "k", N: tc.two}}
		res, err := hybridlimit.AllowAll(t.Context(), asks...)
		if res.Allowed != tc.allowed || !errors.Is(err, tc.err) {
			t.Errorf("%d and %d: %+v, %v", tc.one, tc.two, res, err)
		}
		asks[0].Permit.Release()
		if d.held != 0 {
			t.Fatalf("%d and %d: %d are held", tc.one, tc.two, d.held)
		}
	}
}

// A panic of a limiter leaves no permit.
func TestAllowAllReleasesPermitsAfterAPanic(t *testing.T) {
	var log []string
	d := &counter{name: "d", n: 1, log: &log}
	calls, err := local.New(hybridlimit.PerDay(1), local.Config{LimitFor: func(string) hybridlimit.Limit { panic("no plan") }})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: d, Key: "k", N: 1}, hybridlimit.Ask{Limiter: calls, Key: "k", N: 1})
	}()
	if d.held != 0 {
		t.Errorf("%d permits are held", d.held)
	}
}

// Invalid asks are found before a permit is acquired, and named by their index.
func TestAllowAllNamesInvalidAsks(t *testing.T) {
	var log []string
	d := &counter{name: "d", n: 1, log: &log}
	var none *counter
	asks := []hybridlimit.Ask{
		{Limiter: d, Key: "k", N: 1},
		{Key: "k", N: 1},
		{Limiter: none, Key: "k", N: 1},
		{Limiter: limittest.AllowAll(), Key: "k", N: 1},
	}
	_, err := hybridlimit.AllowAll(t.Context(), asks...)
	const want = "hybridlimit: AllowAll: asks[1].Limiter (<nil>) must not be nil; asks[2].Limiter (<nil>) must not be nil; asks[3].Limiter ("
	if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.HasPrefix(err.Error(), want) || len(log) > 0 {
		t.Errorf("%v, asked: %v", err, log)
	}
}
