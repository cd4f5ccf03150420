package hybrid

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/keys"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// twoOfAHub returns two limiters of a hub. Each has a budget of at least 100 units of the key "k" in its word.
func twoOfAHub(t *testing.T) (h *Hub, a, b *Limiter) {
	t.Helper()
	h, err := NewHub(redistest.NewBubble(t).Client(nil), HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	open := func(name string) *Limiter {
		l, err := h.Limiter(hybridlimit.PerSecond(1_000_000), Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a, b = open("a"), open("b")
	time.Sleep(2100 * time.Millisecond)
	warm(t, a)
	warm(t, b)
	return h, a, b
}

// warm calls until the word of the key "k" has a budget of the present epoch.
func warm(t *testing.T, l *Limiter) {
	t.Helper()
	for range 20 {
		if e := l.terms.Store.Get("k"); e != nil {
			if w := e.Word.Load(); !account.Over(w, l.clock.Epoch()) && account.KindOf(w) != account.DenyBudget && account.UnitsOf(w) >= 100 {
				return
			}
		}
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	t.Fatal("the key has no budget")
}

// The fast path takes the units of all limits. A later call finds the same units less those, as after calls of AllowN.
func TestAllCommonSpendsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a, b := twoOfAHub(t)
		before := [2]int64{unitsInWord(a), unitsInWord(b)}
		asks := []hybridlimit.Ask{{Limiter: b, Key: "k", N: 3}, {Limiter: a, Key: "k", N: 1}}
		for i := range asks { // of a call before
			asks[i].Result = hybridlimit.Result{Shadowed: true, Delay: time.Hour, RetryAfter: time.Hour, Policy: "old"}
		}
		res, ok := h.allCommon(asks)
		if !ok || !res.Allowed || res.Remaining != min(asks[0].Result.Remaining, asks[1].Result.Remaining) || asks[0].Result.Granted != 3 || asks[1].Result.Granted != 1 {
			t.Fatalf("%+v, %t; %+v", res, ok, asks)
		}
		for _, ask := range asks {
			if r := ask.Result; r.Shadowed || r.Delay != 0 || r.RetryAfter != 0 {
				t.Errorf("%+v", r)
			}
		}
		if asks[0].Result.Policy != "b" || asks[1].Result.Policy != "a" {
			t.Errorf("the answers are in another order than the asks: %+v", asks)
		}
		if got := [2]int64{unitsInWord(a), unitsInWord(b)}; got != [2]int64{before[0] - 1, before[1] - 3} {
			t.Errorf("the words have %v units, want 1 and 3 less than %v", got, before)
		}
		if sa, sb := a.Stats(), b.Stats(); sb.Admitted-sa.Admitted != 2 || sa.Decisions() != sb.Decisions() {
			t.Errorf("a: %d units in %d decisions; b: %d in %d", sa.Admitted, sa.Decisions(), sb.Admitted, sb.Decisions())
		}
	})
}

// Time stands still in a bubble, so no epoch passes, and no other goroutine allocates.
func TestAllCommonAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoOfAHub(t)
		asks := []hybridlimit.Ask{{Limiter: a, Key: "k", N: 1}, {Limiter: b, Key: "k", N: 1}}
		var last hybridlimit.Result
		runs := min(unitsInWord(a), unitsInWord(b), 1000) - 2
		if n := testing.AllocsPerRun(int(runs), func() { last, _ = hybridlimit.AllowAll(t.Context(), asks...) }); n != 0 || !last.Allowed {
			t.Errorf("%v allocations a call, in %d calls; %+v", n, runs, last)
		}
	})
}

// If one word lacks units at the last moment, the others get theirs back, and nothing is counted.
func TestAllCommonPutsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a, b := twoOfAHub(t)
		asks := []hybridlimit.Ask{{Limiter: a, Key: "k", N: 5}, {Limiter: b, Key: "k", N: 2}}
		parts := []commonPart{{ask: &asks[0]}, {ask: &asks[1]}}
		for i := range parts {
			if !parts[i].find(h) {
				t.Fatalf("part %d: the fast path cannot decide", i)
			}
		}
		for unitsInWord(b) > 1 { // other callers come first
			if res, err := b.AllowN(t.Context(), "k", min(unitsInWord(b)-1, 1000)); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		more := &a.terms.Count.Words[parts[0].kind].More
		before, counted := unitsInWord(a), more.Load()
		if spendAll(parts) || unitsInWord(a) != before || unitsInWord(b) != 1 {
			t.Errorf("%d units of %d are left, and %d of 1", unitsInWord(a), before, unitsInWord(b))
		}
		if more.Load() != counted {
			t.Errorf("%d units are counted beyond the first of each call, before the call %d", more.Load(), counted)
		}
	})
}

// If words deny, the limit with the longest RetryAfter denies the call. It alone counts the denial, and the others lose no unit.
func TestAllCommonDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a, _ := twoOfAHub(t)
		shut := map[string]*Limiter{}
		for name, limit := range map[string]hybridlimit.Limit{"hour": hybridlimit.PerHour(1), "minute": hybridlimit.PerMinute(1)} {
			l, err := h.Limiter(limit, Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if _, err := l.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			shut[name] = l
		}
		asks := []hybridlimit.Ask{
			{Limiter: a, Key: "k", N: 7, Result: hybridlimit.Result{Allowed: true, Policy: "old"}},
			{Limiter: shut["minute"], Key: "k", N: 1, Result: hybridlimit.Result{Policy: "old"}},
			{Limiter: shut["hour"], Key: "k", N: 1, Result: hybridlimit.Result{Shadowed: true, Delay: time.Hour}},
		}
		before := unitsInWord(a)
		denied := [2]int64{unitsInWord(shut["minute"]), unitsInWord(shut["hour"])}
		res, ok := h.allCommon(asks)
		if !ok || res.Allowed || res.Policy != "hour" || res.RetryAfter < time.Second || res.Source != hybridlimit.SourceDenyCache || res.Shadowed || res.Delay != 0 {
			t.Fatalf("%+v, %t", res, ok)
		}
		if asks[0].Result != (hybridlimit.Result{}) || asks[1].Result != (hybridlimit.Result{}) || asks[2].Result != res {
			t.Errorf("%+v", asks)
		}
		if got := [2]int64{unitsInWord(shut["minute"]), unitsInWord(shut["hour"])}; unitsInWord(a) != before || got != [2]int64{denied[0], denied[1] + 1} {
			t.Errorf("%d units of %d are left; the denials are counted %v, before %v", unitsInWord(a), before, got, denied)
		}
		slow, err := h.allowJoint(t.Context(), []joint{{a, "k", 7}, {shut["minute"], "k", 1}, {shut["hour"], "k", 1}}, make([]hybridlimit.Ask, 3))
		if err != nil || slow.Allowed || slow.Policy != res.Policy || slow.Source != res.Source || (slow.RetryAfter-res.RetryAfter).Abs() > 2*keys.Tick {
			t.Errorf("the slow path says %+v, %v; want %+v", slow, err, res)
		}
		if n := testing.AllocsPerRun(50, func() { res, _ = hybridlimit.AllowAll(t.Context(), asks...) }); n != 0 || res.Allowed {
			t.Errorf("%v allocations a call; %+v", n, res)
		}
		if err := shut["hour"].SetSwitch(SwitchShadow); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if res, err := hybridlimit.AllowAll(t.Context(), asks[0], asks[2]); err != nil || !res.Allowed || !res.Shadowed {
				t.Errorf("in shadow: %+v, %v", res, err)
			}
		}
	})
}

// The slow path decides everything else.
func TestAllCommonLeavesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a, b := twoOfAHub(t)
		other, _, _ := twoOfAHub(t)
		ask := func(l hybridlimit.Limiter, key string, n int64) hybridlimit.Ask {
			return hybridlimit.Ask{Limiter: l, Key: key, N: n}
		}
		many := []hybridlimit.Ask{ask(a, "k", 1), ask(b, "k", 1), ask(a, "1", 1), ask(a, "2", 1), ask(a, "3", 1)}
		for name, asks := range map[string][]hybridlimit.Ask{
			"no asks":           nil,
			"too many":          many,
			"nil":               {ask(nil, "k", 1)},
			"a nil pointer":     {ask((*Limiter)(nil), "k", 1)},
			"no units":          {ask(a, "k", 0)},
			"negative":          {ask(a, "k", -1)},
			"an unknown key":    {ask(a, "k", 1), ask(b, "new", 1)},
			"no key":            {ask(a, "", 1)},
			"one key twice":     {ask(a, "k", 1), ask(b, "k", 1), ask(a, "k", 1)},
			"above the budget":  {ask(a, "k", 1), ask(b, "k", unitsInWord(b)+1)},
			"above the burst":   {ask(a, "k", 1), ask(b, "k", 1_000_001)},
			"more than a word":  {ask(a, "k", 1), ask(b, "k", 1<<62)},
			"a limit elsewhere": {ask(a, "k", 1), ask(ofAnotherHub(other), "k", 1)},
		} {
			words := [2]int64{unitsInWord(a), unitsInWord(b)}
			if res, ok := h.allCommon(asks); ok {
				t.Errorf("%s: %+v", name, res)
			}
			if got := [2]int64{unitsInWord(a), unitsInWord(b)}; got != words {
				t.Errorf("%s: the words have %v units, before %v", name, got, words)
			}
		}
		b.Close()
		if res, ok := h.allCommon([]hybridlimit.Ask{ask(a, "k", 1), ask(b, "k", 1)}); ok {
			t.Errorf("a limiter is closed: %+v", res)
		}
	})
}

func ofAnotherHub(h *Hub) *Limiter {
	for _, l := range h.Limiters() {
		return l
	}
	return nil
}

func unitsInWord(l *Limiter) int64 { return account.UnitsOf(l.terms.Store.Get("k").Word.Load()) }

// BenchmarkAllowAll compares a call under two hot limits with a call under one.
func BenchmarkAllowAll(b *testing.B) {
	h, err := NewHub(redistest.New(b).Client(b), HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	var ls [2]*Limiter
	for i, name := range []string{"user", "all"} {
		if ls[i], err = h.Limiter(hybridlimit.PerSecond(1_000_000_000), Config{Name: name}); err != nil {
			b.Fatal(err)
		}
	}
	ctx := context.Background()
	ask := []hybridlimit.Ask{{Limiter: ls[0], Key: "k", N: 1}, {Limiter: ls[1], Key: "k", N: 1}}
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		if _, err := hybridlimit.AllowAll(ctx, ask...); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if res, err := ls[0].Allow(ctx, "k"); err != nil || !res.Allowed {
				b.Fatal(res, err)
			}
		}
	})
	b.Run("both, in parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			ask := slices.Clone(ask)
			for pb.Next() {
				if res, err := hybridlimit.AllowAll(ctx, ask...); err != nil || !res.Allowed {
					b.Error(res, err)
					return
				}
			}
		})
	})
	b.Run("both", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if res, err := hybridlimit.AllowAll(ctx, ask...); err != nil || !res.Allowed {
				b.Fatal(res, err)
			}
		}
	})
}
