package region_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/region"
)

// TestBadOthers has another region whose Redis cannot give units. Calls are decided by the share as fast as ever, each
// failure is counted, the log names the cause at most once a minute, and the region is asked less and less often.
func TestBadOthers(t *testing.T) {
	for _, tc := range []struct {
		name string
		bad  func(p *process, z *zone)
		want string // in the log
	}{
		{"hangs", func(p *process, _ *zone) { p.far["b"].Pause() }, "deadline"},
		{"is not there", func(p *process, _ *zone) { p.far["b"].Refuse(true); p.far["b"].CutAll() }, "EOF"},
		{"is a replica", func(_ *process, z *zone) {
			z.redis.Mini.SetError("READONLY You can't write against a read only replica.")
		}, "READONLY"},
		{"is a node of a cluster", func(_ *process, z *zone) { z.redis.Mini.SetError("MOVED 866 127.0.0.1:1") }, "MOVED"},
		{"is loading", func(_ *process, z *zone) { z.redis.Mini.SetError("LOADING Redis is loading the dataset in memory") }, "LOADING"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testenv.Log
				g := newLoggedGlobe(t, slog.New(slog.NewTextHandler(&log, nil)), hybridlimit.PerSecond(900), nil, 1, 0)
				time.Sleep(8 * time.Second)
				a := g.zones[0]
				g.run(3*time.Second, "k", 1350)
				tc.bad(a.procs[0], g.zones[1])
				g.run(time.Second, "k", 1350)
				before, units := a.stats(), a.got.Load()
				g.run(10*time.Second, "k", 1350)
				s := a.stats()
				failed, asks := s.Failed-before.Failed, s.Asks-before.Asks
				if failed < 5 || max(failed, asks) > min(failed, asks)+1 || s.Moved != before.Moved || asks > 15 {
					t.Errorf("%+v, and ten seconds before %+v", s, before)
				}
				if got := a.got.Load() - units; got < 4400 || got > 4500+a.burst() {
					t.Errorf("%d calls are admitted in 10 s, want a half of 9000", got)
				}
				if lines := strings.Count(log.String(), "another region did not answer"); lines != 1 || !strings.Contains(log.String(), tc.want) {
					t.Errorf("want one line with %q:\n%s", tc.want, log.String())
				}
			})
		})
	}
}

// TestWithoutOwnRedis stops the Redis of the region here. Its fallback decides, and no other region is asked.
func TestWithoutOwnRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.PerSecond(900), nil, 2, 1)
		time.Sleep(8 * time.Second)
		g.run(3*time.Second, "k", 1350)
		g.zones[0].redis.Kill()
		g.run(2*time.Second, "k", 1350)
		asks := g.zones[0].stats().Asks
		g.run(10*time.Second, "k", 1350)
		if more := g.zones[0].stats().Asks - asks; more > 2 {
			t.Errorf("%d asks without a Redis here", more)
		}
		g.zones[0].redis.Restart()
		g.run(10*time.Second, "k", 1350)
		units := g.units.Load()
		g.run(5*time.Second, "k", 1350)
		if part := float64(g.units.Load()-units) / 4500; part < admitted {
			t.Errorf("afterwards, %.3f of the limit is admitted; %v", part, g)
		}
	})
}

// TestSwitchesMoveNothing sets switches by which Redis is not asked, or the limit does not count: no units move.
func TestSwitchesMoveNothing(t *testing.T) {
	for _, s := range []hybrid.Switch{hybrid.SwitchLocalOnly, hybrid.SwitchAllowAll, hybrid.SwitchDenyAll} {
		synctest.Test(t, func(t *testing.T) {
			g := newGlobe(t, hybridlimit.PerSecond(90), nil, 1, 1)
			time.Sleep(8 * time.Second)
			p := g.zones[0].procs[0]
			if err := p.l.Here().SetSwitch(s); err != nil {
				t.Fatal(err)
			}
			g.run(3*time.Second, "k", 300)
			if s := p.l.Stats(); s.Asks > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestShadow has a region in shadow: it denies nothing, and units come as if it did.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.PerSecond(90), func(c *region.Config) { c.Limiter.Shadow = c.Here == "a" }, 1, 1)
		time.Sleep(8 * time.Second)
		g.run(3*time.Second, "k", 135)
		if a := g.zones[0]; a.got.Load() != a.calls.Load() || a.stats().Moved < 30 {
			t.Errorf("%v", g)
		}
	})
}

// TestExactMode decides each call in Redis. Units of other regions come by messages of their own.
func TestExactMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.PerSecond(300), func(c *region.Config) { c.Limiter.Mode = hybrid.ModeExact }, 2, 2)
		time.Sleep(8 * time.Second)
		g.run(settled, "k", 450, 20)
		units := g.units.Load()
		g.run(5*time.Second, "k", 450, 20)
		if part := float64(g.units.Load()-units) / 1500; part < admitted || g.excess() > 0 {
			t.Errorf("%.3f of the limit is admitted, excess %.2f; %v", part, g.excess(), g)
		}
	})
}

// TestHashedKeys has hubs with HubConfig.HashKeys: the key is found in the other region, and no Redis has its name.
func TestHashedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.PerSecond(90), nil, 0, 0)
		g.secret = hybridlimit.Secret(strings.Repeat("s", 32))
		for _, z := range g.zones {
			g.add(z, func(c *region.Config) { c.Limiter.TagBy = func(key string) string { return key[:1] } })
		}
		time.Sleep(8 * time.Second)
		g.run(3*time.Second, "alice", 135, 5)
		if s := g.zones[0].stats(); s.Moved < 30 {
			t.Errorf("%+v", s)
		}
		for _, z := range g.zones {
			states := 0
			for _, key := range z.redis.Mini.Keys() {
				if strings.Contains(key, "alice") {
					t.Errorf("%s: %s", z.name, key)
				}
				if strings.Contains(key, ":api:") {
					states++
				}
			}
			if states != 1 {
				t.Errorf("%s has %d states of one key: %q", z.name, states, z.redis.Mini.Keys())
			}
		}
	})
}

// TestManyKeys denies more keys than are noted. The others have the share of the region, and are counted.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGlobe(t, hybridlimit.TokenBucket(1, time.Hour, 10), nil, 1, 1)
		for _, z := range g.zones {
			z.redis.Mini.ClockTTL(false) // it looks at each key whenever time passes
		}
		time.Sleep(8 * time.Second)
		p := g.zones[0].procs[0]
		var all sync.WaitGroup
		for i := range 1200 {
			all.Go(func() {
				for range 12 {
					if _, err := p.l.Allow(t.Context(), fmt.Sprint("k", i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		s := p.l.Stats()
		if s.Keys != 1000 || s.Missed == 0 {
			t.Errorf("%+v, want 1000 keys", s)
		}
		time.Sleep(10 * time.Second)
		if s := p.l.Stats(); s.Keys != 0 {
			t.Errorf("%+v, want no key ten seconds after the last denial", s)
		}
	})
}

// TestShutdown ends a process while units are under way to it. Shutdown lets them come, and Redis hears of all of them.
// Close loses them.
func TestShutdown(t *testing.T) {
	for _, how := range []string{"Shutdown", "Close", "Shutdown without time", "after the hub"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGlobe(t, hybridlimit.TokenBucket(1, time.Hour, 400), nil, 2, 1)
				time.Sleep(8 * time.Second)
				a, b := g.zones[0], g.zones[1]
				p := a.procs[0]
				for asks := int64(0); asks == 0; asks = p.l.Stats().Asks {
					g.call(a, p, "k")
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Second)
				for asks := p.l.Stats().Asks; p.l.Stats().Asks == asks; time.Sleep(time.Millisecond) {
					g.call(a, p, "k")
				}
				time.Sleep(60 * time.Millisecond) // Redis has taken the units, and the reply is on its way
				whole := a.burst() + b.burst()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var err error
				began := time.Now()
				switch how {
				case "Close":
					err = p.l.Close()
				case "Shutdown without time":
					cancel()
					if err = p.l.Shutdown(ctx); errors.Is(err, context.Canceled) {
						err = nil
					}
				case "after the hub":
					p.hub.Close()
					err = p.l.Shutdown(ctx)
				default:
					err = p.l.Shutdown(ctx)
				}
				if took := time.Since(began); err != nil || took > time.Second {
					t.Errorf("%v after %v", err, took)
				}
				if _, err := p.l.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
					t.Errorf("%v, want ErrClosed", err)
				}
				if err := p.l.Close(); err != nil {
					t.Error(err)
				}
				lost := whole - a.got.Load() - left(t, a.procs[1]) - left(t, b.procs[0]) - p.l.Here().Stats().Expired
				if how == "Shutdown" && lost != 0 || lost < 0 || lost > 50 {
					t.Errorf("%d units are lost", lost)
				}
			})
		})
	}
}

// left returns the units of key "k" in the Redis of a process.
func left(t *testing.T, p *process) int64 {
	t.Helper()
	i, err := p.l.Here().InspectRedis(t.Context(), "k")
	if err != nil || i.Redis == nil {
		t.Fatal(i.RedisError, err)
	}
	return i.Redis.Left
}
