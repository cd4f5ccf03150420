package rls

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// Floors that are added, changed and removed keep the counts. Limits of other kinds keep their limiter.
func TestReloadOfFloors(t *testing.T) {
	batch20, batch50 := []string{"value: batch, floor: 0.2"}, []string{"value: batch, floor: 0.5"}
	for _, algorithm := range []string{"token bucket", "fixed window"} {
		for name, c := range map[string]struct {
			before, after   []string
			first           int // calls with the rules before
			batch, critical int // further calls of each class that may pass
		}{
			"added":              {nil, batch20, 30, 50, 20},
			"removed":            {batch20, nil, 80, 0, 20},
			"raised":             {batch20, batch50, 30, 20, 50},
			"lowered":            {batch50, batch20, 50, 30, 20},
			"another one":        {batch20, []string{"value: batch, floor: 0.2", "value: x, floor: 0.4"}, 30, 50, 20},
			"zero":               {batch20, []string{"value: batch, floor: 0"}, 80, 20, 0},
			"of an unknown kind": {nil, batch20, 0, 80, 20},
		} {
			t.Run(algorithm+"/"+name, virtually(func(t *testing.T) {
				s := inMemory(t, account(algorithm, c.before...), exactly(algorithm))
				first := batch()
				if c.before == nil {
					first = critical()
				}
				for range c.first {
					if !admitted(t, s, first) {
						t.Fatal("denied")
					}
				}
				ask(t, s, request("shop", desc("other", "a")))
				load(t, s, account(algorithm, c.after...))
				if c.after != nil {
					take(t, s, batch(), c.batch)
				} else if got := ask(t, s, request("shop", batch())); got != "ok: ok" {
					t.Errorf("a class that was removed: %s", got)
				}
				take(t, s, critical(), c.critical)
				if algorithm == "fixed window" { // the rule of other is of this kind
					take(t, s, desc("other", "a"), 9)
				}
			}))
		}
	}
}

// A reload with the same floors keeps the limiters, and so does a reload without rules of a kind.
func TestReloadKeepsLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := account("token bucket", "value: batch, floor: 0.2")
		s := inMemory(t, rules, Options{})
		k := kind{domain: "shop", algorithm: hybridlimit.AlgTokenBucket}
		before, err := s.limiters.get(k)
		if err != nil {
			t.Fatal(err)
		}
		for _, next := range []string{account("token bucket", "value: x, floor: 0.20"), "domain: shop\n", rules, strings.Replace(rules, "100", "0", 1), rules} {
			load(t, s, next)
			if now, err := s.limiters.get(k); err != nil || now != before {
				t.Errorf("another limiter, %v, after\n%s", err, next)
			}
		}
		load(t, s, account("token bucket", "value: batch, floor: 0.3"))
		now, err := s.limiters.get(k)
		if err != nil || now == before {
			t.Errorf("the limiter of other floors, %v", err)
		}
		if _, err := before.Allow(t.Context(), "k"); err == nil {
			t.Error("the limiter before is open")
		}
	})
}

// Each verb that meets a closed limiter asks the one that has taken its place, also if its floor was removed meanwhile.
func TestVerbsFindTheNextLimiter(t *testing.T) {
	for name, verb := range map[string]func(*call, context.Context) error{
		"ask":       func(c *call, ctx context.Context) error { return c.ask(ctx, 0) },
		"look":      func(c *call, ctx context.Context) error { return c.look(ctx, 0) },
		"give back": func(c *call, ctx context.Context) error { return c.giveBack(ctx, 0) },
		"take rest": func(c *call, ctx context.Context) error { return c.takeRest(ctx, 0) },
		"joint":     func(c *call, ctx context.Context) error { c.together = []int{0, 1}; return c.askJoint(ctx) },
	} {
		t.Run(name, virtually(func(t *testing.T) {
			s := inMemory(t, account("fixed window", "value: batch, floor: 0.2"), Options{})
			c := &call{s: s}
			if err := c.resolve(t.Context(), s, s.state.Load(), request("shop", hits(batch(), 2), hits(critical(), 3))); err != nil {
				t.Fatal(err)
			}
			c.verdicts[0].remaining = 9
			before := c.parts[0].limiter
			load(t, s, account("fixed window", "value: batch, floor: 0.3", "value: x, floor: 0.4"))
			if err := verb(c, t.Context()); err != nil {
				t.Fatal(err)
			}
			now, err := s.limiters.get(c.parts[0].kind)
			if err != nil || c.parts[0].limiter == before || c.parts[0].limiter != viewOf(now, 0.4) {
				t.Errorf("a call with a floor that is gone does not have the largest floor: %v", err)
			}
			if name == "joint" && c.parts[1].limiter != now {
				t.Error("a call without a floor has one")
			}
		}))
	}
}

// Without Redis the classes of an account share one share of the limit, with the floor inside. Other floors take effect there too.
func TestFloorsWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := redistest.NewBubble(t)
		b.Kill()
		hub, err := hybrid.NewHub(b.Client(nil), hybrid.HubConfig{FleetSize: 2, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		s, err := New(hub, Options{Limiter: hybrid.Config{MaxWait: time.Millisecond}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		load(t, s, account("fixed window", "value: batch, floor: 0.2"))
		redistest.Eventually(t, 20*time.Second, "the breaker is open", func() bool {
			res, err := hub.Limiters()[0].Allow(t.Context(), "x")
			return err == nil && res.Source == hybridlimit.SourceFallback
		})
		take(t, s, batch(), 40)
		take(t, s, critical(), 10)
		began := time.Now()
		load(t, s, account("fixed window", "value: batch, floor: 0.5"))
		if took := time.Since(began); took > settleWithin+50*time.Millisecond {
			t.Errorf("the reload took %v", took)
		}
		if !strings.Contains(log.String(), "units owed that Redis has not acknowledged") {
			t.Errorf("the loss is not logged: %q", log.String())
		}
		take(t, s, desc("account", "b", "priority", "batch"), 25)
		take(t, s, desc("account", "b"), 25)
	})
}
