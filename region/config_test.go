package region_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/region"
)

// clients returns a client for each name. Nothing listens at their addresses.
func clients(tb testing.TB, names ...string) map[string]redis.UniversalClient {
	out := map[string]redis.UniversalClient{}
	for _, name := range names {
		out[name] = redistest.Client(tb, "127.0.0.1:1")
	}
	return out
}

func hubOf(tb testing.TB, rdb redis.UniversalClient) *hybrid.Hub {
	tb.Helper()
	h, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: quiet})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { h.Close() })
	return h
}

// TestViolations has one error for each bad field, and all of them at once. Nothing is made then.
func TestViolations(t *testing.T) {
	mine := clients(t, "mine")["mine"]
	for _, tc := range []struct {
		name  string
		limit hybridlimit.Limit // zero: 900 a second
		alter func(*region.Config)
		want  []string // fields
	}{
		{"good", hybridlimit.Limit{}, func(*region.Config) {}, nil},
		{"shares", hybridlimit.Limit{}, func(c *region.Config) { c.Shares = map[string]float64{"eu": 0.5, "us": 0.3, "asia": 0.2} }, nil},
		{"thirds", hybridlimit.Limit{}, func(c *region.Config) { c.Shares = map[string]float64{"eu": 1. / 3, "us": 1. / 3, "asia": 1. / 3} }, nil},
		{"a limit", hybridlimit.Limit{Rate: -1, Period: time.Second}, func(*region.Config) {}, []string{"Limit.Rate"}},
		{"no name", hybridlimit.Limit{}, func(c *region.Config) { c.Name = "" }, []string{"Config.Name"}},
		{"a bad name", hybridlimit.Limit{}, func(c *region.Config) { c.Name = "a b" }, []string{"Config.Name"}},
		{"a long name", hybridlimit.Limit{}, func(c *region.Config) { c.Name = fmt.Sprintf("%0124d", 1) }, []string{"Config.Name"}},
		{"no hub", hybridlimit.Limit{}, func(c *region.Config) { c.Hub = nil }, []string{"Config.Hub"}},
		{"no others", hybridlimit.Limit{}, func(c *region.Config) { c.Others = nil }, []string{"Config.Others"}},
		{"here is empty", hybridlimit.Limit{}, func(c *region.Config) { c.Here = "" }, []string{"Config.Here"}},
		{"here is another", hybridlimit.Limit{}, func(c *region.Config) { c.Here = "us" }, []string{`Config.Others["us"]`}},
		{"here has no share", hybridlimit.Limit{}, func(c *region.Config) {
			c.Here = "mars"
			c.Shares = map[string]float64{"eu": 0.5, "us": 0.3, "asia": 0.2}
		}, []string{"Config.Shares", `Config.Shares["eu"]`}},
		{"another has no share", hybridlimit.Limit{}, func(c *region.Config) { c.Shares = map[string]float64{"eu": 0.5, "us": 0.3} }, []string{"Config.Shares"}},
		{"a share of no region", hybridlimit.Limit{}, func(c *region.Config) {
			c.Shares = map[string]float64{"eu": 0.5, "us": 0.3, "asia": 0.1, "mars": 0.1}
		}, []string{`Config.Shares["mars"]`}},
		{"too large shares", hybridlimit.Limit{}, func(c *region.Config) { c.Shares = map[string]float64{"eu": 0.5, "us": 0.3, "asia": 0.3} }, []string{"Config.Shares"}},
		{"shares that are none", hybridlimit.Limit{}, func(c *region.Config) {
			c.Shares = map[string]float64{"eu": 0, "us": math.NaN(), "asia": -0.5}
		}, []string{`Config.Shares["asia"]`, `Config.Shares["eu"]`, `Config.Shares["us"]`}},
		{"a share below a unit", hybridlimit.PerMinute(40), func(c *region.Config) { c.Shares = map[string]float64{"eu": 0.9, "us": 0.09, "asia": 0.01} }, []string{"Config.Shares"}},
		{"a burst below the regions", hybridlimit.PerSecond(5), func(*region.Config) {}, []string{"Config.Shares", "Config.Shares", "Config.Shares"}},
		{"too much escrow", hybridlimit.Limit{}, func(c *region.Config) { c.Escrow = 0.51 }, []string{"Config.Escrow"}},
		{"negative escrow", hybridlimit.Limit{}, func(c *region.Config) { c.Escrow = -0.1 }, []string{"Config.Escrow"}},
		{"escrow that is no number", hybridlimit.Limit{}, func(c *region.Config) { c.Escrow = math.NaN() }, []string{"Config.Escrow"}},
		{"the client of the hub", hybridlimit.Limit{}, func(c *region.Config) { c.Others["us"] = mine }, []string{`Config.Others["us"]`}},
		{"one client twice", hybridlimit.Limit{}, func(c *region.Config) { c.Others["us"] = c.Others["asia"] }, []string{`Config.Others["us"]`}},
		{"a nil client", hybridlimit.Limit{}, func(c *region.Config) { c.Others["us"] = nil }, []string{`Config.Others["us"]`}},
		{"a nil pointer", hybridlimit.Limit{}, func(c *region.Config) { c.Others["us"] = (*redis.Client)(nil) }, []string{`Config.Others["us"]`}},
		{"a bad name of another", hybridlimit.Limit{}, func(c *region.Config) { c.Others["u s"] = clients(t, "x")["x"] }, []string{`Config.Others["u s"]`}},
		{"fields of the limiter", hybridlimit.Limit{}, func(c *region.Config) {
			c.Limiter = hybrid.Config{
				Name: "x", Hub: hybrid.HubConfig{Prefix: "x"}, LimitFor: func(string) hybridlimit.Limit { return hybridlimit.Blocked() },
				Classes: []hybrid.Class{{Name: "low", Floor: 0.1}}, MaxLease: 2 * time.Second,
			}
		}, []string{"Config.Limiter.Classes", "Config.Limiter.Hub", "Config.Limiter.LimitFor", "Config.Limiter.MaxLease", "Config.Limiter.Name"}},
		{"a bad field of the limiter", hybridlimit.Limit{}, func(c *region.Config) { c.Limiter.MaxKeys = -1 }, []string{"Config.MaxKeys"}},
		{"all", hybridlimit.Limit{}, func(c *region.Config) { *c = region.Config{Escrow: 2} }, []string{"Config.Escrow", "Config.Here", "Config.Hub", "Config.Name", "Config.Others"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hub := hubOf(t, mine)
			cfg := region.Config{Name: "api", Here: "eu", Hub: hub, Others: clients(t, "us", "asia")}
			tc.alter(&cfg)
			limit := tc.limit
			if limit == (hybridlimit.Limit{}) {
				limit = hybridlimit.PerSecond(900)
			}
			l, err := region.New(limit, cfg)
			if len(tc.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			var bad *hybridlimit.InvalidError
			if l != nil || !errors.As(err, &bad) {
				t.Fatalf("%v, %v", l, err)
			}
			var fields []string
			for _, v := range bad.Violations {
				fields = append(fields, v.Field)
			}
			slices.Sort(fields)
			if !slices.Equal(fields, tc.want) {
				t.Errorf("%v: %v, want %v", err, fields, tc.want)
			}
			if n := len(hub.Limiters()) + len(hub.ConcurrencyLimiters()); n > 0 {
				t.Errorf("the hub has %d limiters", n)
			}
		})
	}
}

// TestUnsupported has limits whose units cannot move.
func TestUnsupported(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.FixedWindow(100, time.Second), hybridlimit.SlidingWindow(100, time.Second), hybridlimit.SlidingLog(100, time.Second),
		hybridlimit.LeakyQueue(100, time.Second, 0), hybridlimit.Concurrent(100), hybridlimit.Unlimited(), hybridlimit.Blocked(),
	} {
		hub := hubOf(t, clients(t, "mine")["mine"])
		if _, err := region.New(limit, region.Config{Name: "api", Here: "eu", Hub: hub, Others: clients(t, "us")}); !errors.Is(err, hybridlimit.ErrUnsupported) {
			t.Errorf("%v: %v", limit, err)
		}
		if n := len(hub.Limiters()); n > 0 {
			t.Errorf("%v: the hub has %d limiters", limit, n)
		}
	}
}

// TestNewAgain makes a second limiter of the same name in one hub: it fails, and the first goes on. After Close the name
// is free.
func TestNewAgain(t *testing.T) {
	hub := hubOf(t, clients(t, "mine")["mine"])
	cfg := region.Config{Name: "api", Here: "eu", Hub: hub, Others: clients(t, "us")}
	first, err := region.New(hybridlimit.PerSecond(900), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, taken := range []string{"api", "api.move"} {
		cfg := cfg
		if cfg.Name = "api"; taken != "api" { // the name of its permits
			if _, err := hub.Limiter(hybridlimit.PerSecond(1), hybrid.Config{Name: "other.move"}); err != nil {
				t.Fatal(err)
			}
			cfg.Name = "other"
		}
		var bad *hybridlimit.InvalidError
		if _, err := region.New(hybridlimit.PerSecond(900), cfg); !errors.As(err, &bad) {
			t.Errorf("%s: %v", taken, err)
		}
	}
	if n := len(hub.Limiters()); n != 2 {
		t.Errorf("%d limiters, want the first and that of the test", n)
	}
	if _, err := first.Allow(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	again, err := region.New(hybridlimit.PerSecond(900), cfg)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestPolicy publishes the limit of all regions. A result has the burst of this one.
func TestPolicy(t *testing.T) {
	hub := hubOf(t, clients(t, "mine")["mine"])
	l, err := region.New(hybridlimit.PerSecond(900), region.Config{Name: "api", Here: "eu", Hub: hub, Others: clients(t, "us")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if p := l.Policy("k"); p.Name != "api" || p.Limit != hybridlimit.PerSecond(900) || p.Shadow || l.Name() != "api" {
		t.Errorf("%+v", p)
	}
	res, err := l.AllowN(t.Context(), "k", 900)
	if err != nil || res.Allowed || res.Limit != l.Here().Limit().Burst || res.RetryAfter != hybridlimit.Never {
		t.Errorf("%+v, %v", res, err)
	}
	if s := l.Stats(); s != (region.Stats{}) {
		t.Errorf("%+v: a cost above the burst lets no units come", s)
	}
	if l.Unwrap() != hybridlimit.Limiter(l.Here()) {
		t.Error("Unwrap is another limiter")
	}
}

// TestSetLimit changes the limit, and refuses what New would refuse.
func TestSetLimit(t *testing.T) {
	hub := hubOf(t, clients(t, "mine")["mine"])
	l, err := region.New(hybridlimit.PerSecond(900), region.Config{Name: "api", Here: "eu", Hub: hub, Others: clients(t, "us")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := l.Here().Limit()
	for _, bad := range []hybridlimit.Limit{
		hybridlimit.PerSecond(2), hybridlimit.FixedWindow(900, time.Second), hybridlimit.LeakyBucket(900, time.Second, 0), {},
	} {
		if err := l.SetLimit(bad); err == nil || l.Here().Limit() != before || l.Policy("k").Limit != hybridlimit.PerSecond(900) {
			t.Errorf("%v: %v, and the limit is %v", bad, err, l.Policy("k").Limit)
		}
	}
	if err := l.SetLimit(hybridlimit.PerSecond(1800)); err != nil {
		t.Fatal(err)
	}
	if now := l.Here().Limit(); now.Burst != 2*before.Burst || l.Policy("k").Limit != hybridlimit.PerSecond(1800) {
		t.Errorf("%v after %v", now, before)
	}
	l.Close()
	if err := l.SetLimit(hybridlimit.PerSecond(900)); !errors.Is(err, hybridlimit.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}
