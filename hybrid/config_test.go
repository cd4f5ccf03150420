package hybrid_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// nobody returns a client of an address without a server. Constructors do not
// connect.
func nobody(tb testing.TB) *redis.Client {
	return redistest.Client(tb, "127.0.0.1:1", oneDial)
}

// A limit of calls in flight is refused wherever a rate is read, with the method that
// takes it. And a rate is refused where calls in flight are counted.
func TestCallsInFlightAreNoRate(t *testing.T) {
	limit := hybridlimit.Concurrent(5)
	l, err := hybrid.New(nobody(t), limit, hybrid.Config{Name: "a"})
	if l != nil || !errors.Is(err, hybridlimit.ErrUnsupported) || !strings.Contains(err.Error(), "use Hub.Concurrency, or NewConcurrency of package local for one process") {
		t.Errorf("New: %v, %v", l, err)
	}
	for _, first := range []hybridlimit.Limit{hybridlimit.PerSecond(1), hybridlimit.Unlimited()} {
		h, err := hybrid.NewHub(nobody(t), hybrid.HubConfig{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if l, err := h.Limiter(limit, hybrid.Config{Name: "b"}); l != nil || !errors.Is(err, hybridlimit.ErrUnsupported) {
			t.Errorf("Hub.Limiter: %v, %v", l, err)
		}
		own, err := h.Limiter(first, hybrid.Config{Name: "a", LimitFor: func(key string) hybridlimit.Limit {
			if key == "own" {
				return limit
			}
			return first
		}})
		if err != nil {
			t.Fatal(err)
		}
		_, perKey := own.Allow(t.Context(), "own")
		_, perCall := own.AllowLimit(t.Context(), "k", 1, limit)
		for how, err := range map[string]error{
			"SetLimit": own.SetLimit(limit), "LimitFor": perKey, "AllowLimit": perCall,
			"SetFleetLimit":     own.SetFleetLimit(t.Context(), hybrid.FleetLimit{Limit: limit}),
			"settings":          h.SetSettings(map[string]hybrid.Settings{"a": {Limit: limit}}),
			"settings of a key": h.SetSettings(map[string]hybrid.Settings{"a": {Keys: map[string]hybridlimit.Limit{"k": limit}}}),
		} {
			if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "use Hub.Concurrency, or NewConcurrency of package local for one process") {
				t.Errorf("%v, %s: %v", first, how, err)
			}
		}
		calls, err := h.Concurrency(limit, hybrid.ConcurrencyConfig{Name: "calls"})
		if err != nil {
			t.Fatal(err)
		}
		rate := hybridlimit.PerSecond(5)
		if l, err := h.Concurrency(rate, hybrid.ConcurrencyConfig{Name: "c"}); l != nil || !errors.Is(err, hybridlimit.ErrUnsupported) {
			t.Errorf("Concurrency: %v, %v", l, err)
		}
		for how, err := range map[string]error{
			"SetLimit":      calls.SetLimit(rate),
			"SetFleetLimit": calls.SetFleetLimit(t.Context(), hybrid.FleetLimit{Limit: rate}),
			"settings":      h.SetSettings(map[string]hybrid.Settings{"calls": {Limit: rate}}),
		} {
			if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), "Algorithm") {
				t.Errorf("a rate, %s: %v", how, err)
			}
		}
		_ = h.Close()
	}
}

// TestConcurrencyViolations checks that one error has all violations.
func TestConcurrencyViolations(t *testing.T) {
	h := newHub(t, nobody(t), hybrid.HubConfig{})
	_, err := h.Concurrency(hybridlimit.Concurrent(0), hybrid.ConcurrencyConfig{
		Name: "a b", Mode: hybrid.ModeStrict, MaxWait: -1, MaxKeys: -1, MaxKeyBytes: -1, Fallback: 99,
	})
	for _, field := range []string{"Limit", `Name ("a b")`, "Mode (strict)", "MaxWait", "MaxKeys", "MaxKeyBytes", "Fallback"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	if _, err := h.Concurrency(hybridlimit.Concurrent(1), hybrid.ConcurrencyConfig{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Limiter(hybridlimit.PerSecond(1), hybrid.Config{Name: "a"}); !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("two limiters of a name: %v", err)
	}
	if got := len(h.Limiters()) + 10*len(h.ConcurrencyLimiters()); got != 10 {
		t.Errorf("the hub lists %d", got)
	}
}

func TestNilClient(t *testing.T) {
	var typed *redis.Client
	var cluster *redis.ClusterClient
	for _, rdb := range []redis.UniversalClient{nil, typed, cluster} {
		if _, err := hybrid.New(rdb, hybridlimit.PerSecond(1), hybrid.Config{Name: "a"}); !errors.Is(err, hybridlimit.ErrNilClient) {
			t.Errorf("New(%T): %v", rdb, err)
		}
		if _, err := hybrid.NewHub(rdb, hybrid.HubConfig{}); !errors.Is(err, hybridlimit.ErrNilClient) {
			t.Errorf("NewHub(%T): %v", rdb, err)
		}
	}
	_, err := hybrid.New(nil, hybridlimit.Limit{}, hybrid.Config{})
	if !errors.Is(err, hybridlimit.ErrNilClient) || !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Errorf("no client, no limit, no name: %v, want all of it in one error", err)
	}
}

// bad lists each field's bad values, one at a time.
var bad = []struct {
	field string
	cfg   func(*hybrid.Config, *hybridlimit.Limit)
}{
	{"Config.Name", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Name = "" }},
	{"Config.Name", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Name = "a:b" }},
	{"Config.Name", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Name = "{a}" }},
	{"Config.Name", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Name = strings.Repeat("a", 129) }},
	{"Config.Mode", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Mode = hybrid.ModeExact + 1 }},
	{"Config.Overshoot", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Overshoot = 1.01 }},
	{"Config.Overshoot", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Overshoot = math.NaN() }},
	{"Config.Overshoot", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Overshoot = math.Inf(1) }},
	{"Config.Overshoot", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Overshoot, c.Mode = 0.1, hybrid.ModeStrict }},
	{"Config.SyncEvery", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.SyncEvery = -1 }},
	{"Config.SyncInterval", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.SyncInterval = -1 }},
	{"Config.MaxWait", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.MaxWait, c.Mode = -1, hybrid.ModeExact }},
	{"Config.MaxLease", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.MaxLease = 3 * time.Second }},
	{"Config.MaxLease", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.MaxLease = 8 * time.Second }},
	{"Config.MaxLease", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.MaxLease = -time.Second }},
	{"Config.MaxKeys", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.MaxKeys = -1 }},
	{"Config.LimitRefresh", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.LimitRefresh = -time.Second }},
	{"Config.MaxKeyBytes", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.MaxKeyBytes = -1 }},
	{"Config.Fallback", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Fallback = hybrid.FallbackDenyAll + 1 }},
	{"Config.FallbackFloor", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.FallbackFloor = 11 }},
	{"Limit.Rate", func(_ *hybrid.Config, l *hybridlimit.Limit) { l.Rate = 0 }},
	{"Limit.Rate", func(_ *hybrid.Config, l *hybridlimit.Limit) { l.Rate = -5 }},
	{"Limit.Period", func(_ *hybrid.Config, l *hybridlimit.Limit) { l.Period = 0 }},
	{"Limit.Period", func(_ *hybrid.Config, l *hybridlimit.Limit) { l.Period = 1500 }},
	{"Limit.Burst", func(_ *hybrid.Config, l *hybridlimit.Limit) { l.Burst = -1 }},
	{"Limit.Algorithm", func(_ *hybrid.Config, l *hybridlimit.Limit) { l.Algorithm = 99 }},
	{"HubConfig.Prefix", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Prefix = "a b" }},
	{"HubConfig.Tags", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Tags = -1 }},
	{"HubConfig.Tags", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Tags = 16385 }},
	{"HubConfig.FleetSize", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.FleetSize = -1 }},
	{"HubConfig.SyncTimeout", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.SyncTimeout = -1 }},
	{"HubConfig.Breaker.Failures", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Breaker.Failures = -1 }},
	{"HubConfig.Breaker.FailureRatio", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Breaker.FailureRatio = 2 }},
	{"HubConfig.Breaker.MinCalls", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Breaker.MinCalls = -1 }},
	{"HubConfig.Breaker.Window", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Breaker.Window = -1 }},
	{"HubConfig.Breaker.SlowCall", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Breaker.SlowCall = 25 * time.Hour }},
	{"HubConfig.Breaker.OpenFor", func(c *hybrid.Config, _ *hybridlimit.Limit) { c.Hub.Breaker.OpenFor = -1 }},
}

func TestEachBadField(t *testing.T) {
	rdb := nobody(t)
	for i, b := range bad {
		cfg, limit := hybrid.Config{Name: "api"}, hybridlimit.TokenBucket(10, time.Second, 10)
		b.cfg(&cfg, &limit)
		_, err := hybrid.New(rdb, limit, cfg)
		var invalid *hybridlimit.InvalidError
		if !errors.Is(err, hybridlimit.ErrInvalid) || !errors.As(err, &invalid) || len(invalid.Violations) != 1 ||
			invalid.Violations[0].Field != b.field || !strings.HasPrefix(err.Error(), "hybrid: "+b.field+" (") {
			t.Errorf("case %d: %v, want one violation of %s", i, err, b.field)
		}
		// The same through a hub: NewHub checks HubConfig, and Hub.Limiter the
		// rest.
		h, err := hybrid.NewHub(rdb, cfg.Hub)
		if err == nil {
			_, err = h.Limiter(limit, cfg)
			h.Close()
		}
		if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), b.field+" (") {
			t.Errorf("case %d, through a hub: %v, want %s", i, err, b.field)
		}
	}
}

func TestAllBadFieldsAtOnce(t *testing.T) {
	_, err := hybrid.New(nobody(t), hybridlimit.Limit{Rate: -1, Burst: -1, Algorithm: 99}, hybrid.Config{
		Name: "no spaces", Mode: 99, Overshoot: 2, SyncEvery: -1, SyncInterval: -1, LimitRefresh: -1, MaxLease: 1, MaxKeys: -1, MaxKeyBytes: -1, Fallback: 99,
		Hub: hybrid.HubConfig{
			Prefix: ":", Tags: -1, FleetSize: -1, SyncTimeout: -1,
			Breaker: breaker.Config{Failures: -1, FailureRatio: 2, MinCalls: -1, Window: -1, SlowCall: 25 * time.Hour, OpenFor: -1},
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	fields := map[string]bool{}
	for _, b := range bad {
		fields[b.field] = true
	}
	for _, needs := range []string{"Config.MaxWait", "Config.FallbackFloor"} { // bad only with a certain good value of another field
		delete(fields, needs)
	}
	for f := range fields {
		if !strings.Contains(err.Error(), f+" (") {
			t.Errorf("%s is not named in %v", f, err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.NewBubble(t).Client(nil)
		l := newLimiter(t, rdb, still(5), hybrid.Config{MaxKeyBytes: 8})
		for _, c := range []struct {
			key  string
			n    int64
			want error
		}{
			{"", 1, hybridlimit.ErrEmptyKey},
			{"123456789", 1, hybridlimit.ErrKeyTooLong},
			{"k", 0, hybridlimit.ErrCost},
			{"k", -1, hybridlimit.ErrCost},
			{"k", math.MinInt64, hybridlimit.ErrCost},
		} {
			if res, err := l.AllowN(t.Context(), c.key, c.n); !errors.Is(err, c.want) || res != (hybridlimit.Result{}) {
				t.Errorf("AllowN(%q, %d): %+v, %v, want %v", c.key, c.n, res, err, c.want)
			}
		}
		if res := ask(t, l, "12345678", 1); !res.Allowed {
			t.Errorf("a key of just MaxKeyBytes: %+v", res)
		}
		if got := debited(t, rdb, "api", "k", "12345678"); got != 1 {
			t.Errorf("%d units were debited, want 1", got)
		}
		l.Close()
		if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if _, err := l.Allow(t.Context(), ""); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("closed, and a bad key: %v", err)
		}
		h := newHub(t, rdb, hybrid.HubConfig{})
		h.Close()
		if _, err := h.Limiter(still(5), hybrid.Config{Name: "late"}); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("a limiter of a closed hub: %v", err)
		}
	})
}

// TestCostAboveTheBurst checks that a cost above the burst is never admitted:
// for a new key, with a lease, with credit, or while calls are denied. The
// answer has the units left. For a key that this process knows, it costs no
// message.
func TestCostAboveTheBurst(t *testing.T) {
	t.Parallel()
	for _, mode := range []hybrid.Mode{hybrid.ModeAuto, hybrid.ModeStrict, hybrid.ModeDeferred, hybrid.ModeExact} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, redistest.NewBubble(t).Client(nil), hybridlimit.TokenBucket(100, time.Second, 200), hybrid.Config{Mode: mode})
				want := hybridlimit.Result{
					Limit: 200, RetryAfter: hybridlimit.Never, Source: hybridlimit.SourceStatic, Policy: "api",
				}
				for i := range 400 {
					for _, n := range []int64{201, math.MaxInt64} {
						res := ask(t, l, "k", n)
						peek := must(t)(l.Peek(t.Context(), "k"))
						want.Remaining, want.ResetAfter = peek.Remaining, peek.ResetAfter
						if res != want {
							t.Fatalf("call %d, cost %d: %+v, want %+v", i, n, res, want)
						}
					}
					ask(t, l, "k", 1)
					time.Sleep(time.Millisecond)
				}
				sources := l.Stats()
				if mode == hybrid.ModeAuto && (sources.Denied[hybridlimit.SourceDenyCache] == 0 || sources.Allowed[hybridlimit.SourceLease] == 0) {
					t.Errorf("the key never had a lease or never was denied: %+v", sources)
				}
			})
		})
	}
}

// The error about a name that is taken says what to do.
func TestTakenName(t *testing.T) {
	h, err := hybrid.NewHub(nobody(t), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for i := range 2 {
		_, err = h.Limiter(hybridlimit.PerSecond(10), hybrid.Config{Name: "api"})
		if (err != nil) != (i == 1) {
			t.Errorf("limiter %d: %v", i, err)
		}
	}
	const want = `hybrid: Config.Name ("api") is taken by another limiter of this hub; ` +
		"share the limiter that Hub.Limiter has returned, or close it first"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestOneIdentityOneLimit(t *testing.T) {
	rdb := nobody(t)
	a, b := hybridlimit.PerSecond(10), hybridlimit.PerSecond(20)
	first := newLimiter(t, rdb, a, hybrid.Config{Name: "api"})
	_, err := hybrid.New(rdb, b, hybrid.Config{Name: "api"})
	if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), a.String()) ||
		!strings.Contains(err.Error(), b.String()) || !strings.Contains(err.Error(), `"api"`) ||
		!strings.Contains(err.Error(), "make one *hybrid.Hub") {
		t.Errorf("another limit: %v, want an error with the name, both limits and the remedy", err)
	}
	second := newLimiter(t, rdb, a, hybrid.Config{Name: "api"}) // the same limit
	newLimiter(t, rdb, b, hybrid.Config{Name: "other"})         // another name
	newLimiter(t, rdb, b, hybrid.Config{Name: "api", Hub: hybrid.HubConfig{Prefix: "x"}})
	newLimiter(t, nobody(t), b, hybrid.Config{Name: "api"}) // another client
	first.Close()
	if _, err := hybrid.New(rdb, b, hybrid.Config{Name: "api"}); err == nil {
		t.Error("another limit, with one of two limiters closed: no error")
	}
	second.Close()
	newLimiter(t, rdb, b, hybrid.Config{Name: "api"}) // no limiter with the other limit is left
}

// wrapped is a client that is not a pointer and cannot be compared.
type wrapped struct {
	redis.UniversalClient
	_ []int
}

func TestClientsThatCannotBeCompared(t *testing.T) {
	newLimiter(t, wrapped{UniversalClient: nobody(t)}, hybridlimit.PerSecond(1), hybrid.Config{})
}

func TestOneNamePerHub(t *testing.T) {
	h := newHub(t, nobody(t), hybrid.HubConfig{})
	add(t, h, hybridlimit.PerSecond(10), hybrid.Config{Name: "api"})
	_, err := h.Limiter(hybridlimit.PerSecond(10), hybrid.Config{Name: "api"})
	if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.Contains(err.Error(), `Config.Name ("api")`) {
		t.Errorf("the same name again: %v", err)
	}
	add(t, h, hybridlimit.PerSecond(10), hybrid.Config{Name: "api2"})
}

func TestLimitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.NewBubble(t).Client(nil)
		l := newLimiter(t, rdb, still(5), hybrid.Config{LimitFor: func(key string) hybridlimit.Limit {
			switch key {
			case "gold":
				return still(50)
			case "staff":
				return hybridlimit.Unlimited()
			case "banned":
				return hybridlimit.Blocked()
			case "none":
				return hybridlimit.Limit{}
			case "window":
				return hybridlimit.FixedWindow(1, time.Second)
			}
			return still(5)
		}})
		for key, want := range map[string]int64{"plain": 5, "gold": 50} {
			for n := int64(0); ; n++ {
				res := ask(t, l, key, 1)
				if res.Limit != want {
					t.Fatalf("%s: Limit is %d, want %d", key, res.Limit, want)
				}
				if !res.Allowed {
					if n != want {
						t.Errorf("%s: %d units admitted, want %d", key, n, want)
					}
					break
				}
			}
		}
		for range 20 {
			if res := ask(t, l, "staff", 1_000_000); !res.Allowed || res.Source != hybridlimit.SourceStatic {
				t.Fatalf("staff: %+v", res)
			}
			if res := ask(t, l, "banned", 1); res.Allowed || res.RetryAfter != hybridlimit.Never || res.Source != hybridlimit.SourceStatic {
				t.Fatalf("banned: %+v", res)
			}
		}
		for key, want := range map[string]error{"none": hybridlimit.ErrInvalid, "window": hybridlimit.ErrInvalid} {
			_, err := l.Allow(context.Background(), key)
			if !errors.Is(err, want) || !strings.Contains(err.Error(), `Config.LimitFor("`+key+`")`) {
				t.Errorf("a bad limit for %q: %v", key, err)
			}
		}
		if s := l.Stats(); s.Keys != 4 {
			t.Errorf("%d keys in memory, want the four that have a limit", s.Keys)
		}
	})
}
