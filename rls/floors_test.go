package rls

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// account returns rules with a limit of 100 a year for each account, and the given descriptors inside. In a window of a year no
// lease of a test ends, and no unit comes back.
func account(algorithm string, inside ...string) string {
	text := "domain: shop\ndescriptors:\n- key: account\n  rate_limit: {unit: year, requests_per_unit: 100, algorithm: " + algorithm + "}\n  descriptors:\n"
	for _, one := range inside {
		text += "  - {key: priority, " + one + "}\n"
	}
	return text + "- key: other\n  rate_limit: {unit: year, requests_per_unit: 10}\n"
}

// virtually returns a test in virtual time.
func virtually(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// inMemory is newService in virtual time.
func inMemory(t testing.TB, yaml string, o Options) *Service {
	t.Helper()
	return newServiceOn(t, redistest.NewBubble(t).Client(nil), yaml, o)
}

// exactly are options with which a bucket loses no unit: a lease of a bucket that is not used in time is lost.
func exactly(algorithm string) (o Options) {
	if strings.HasSuffix(algorithm, "bucket") {
		o.Limiter.Mode = hybrid.ModeExact
	}
	return o
}

// Calls of the account a.
func critical() *ratelimit.RateLimitDescriptor { return desc("account", "a") }
func batch() *ratelimit.RateLimitDescriptor    { return desc("account", "a", "priority", "batch") }

// admitted sends one call and reports whether it may pass.
func admitted(t testing.TB, s *Service, d *ratelimit.RateLimitDescriptor) bool {
	t.Helper()
	got := ask(t, s, request("shop", d))
	if !strings.HasPrefix(got, "ok: ok(") && !strings.HasPrefix(got, "over: over(") {
		t.Fatal(got)
	}
	return got[0] == 'o' && got[1] == 'k'
}

// take sends calls until want were admitted, and 20 more, none of which may pass. A denied call is sent again: Redis may not
// have the units yet that another class has given back.
func take(t testing.TB, s *Service, d *ratelimit.RateLimitDescriptor, want int) {
	t.Helper()
	got := 0
	defer func() {
		if t.Failed() {
			t.Logf("%d were admitted; the hub: %+v", got, s.limiters.hub.Stats())
			for _, l := range s.limiters.hub.Limiters() {
				t.Logf("%s: %+v", l.Name(), l.Stats())
			}
		}
	}()
	redistest.Eventually(t, 30*time.Second, fmt.Sprintf("%d calls are admitted", want), func() bool {
		for got < want && admitted(t, s, d) {
			got++
		}
		return got == want
	})
	for range 20 {
		if admitted(t, s, d) {
			t.Fatalf("%v: more than %d calls were admitted", d.GetEntries(), want)
		}
	}
}

// A flood of calls with a floor leaves it to the others, which use it up. Both have one count.
func TestCriticalReserve(t *testing.T) {
	for _, algorithm := range []string{"token bucket", "leaky bucket", "fixed window", "sliding window"} {
		t.Run(algorithm, virtually(func(t *testing.T) {
			o := exactly(algorithm)
			s := inMemory(t, account(algorithm, "value: batch, floor: 0.2", "value: slow, floor: 0.5"), o)
			slow, left := desc("account", "a", "priority", "slow"), 50
			if o.Limiter.Mode == hybrid.ModeExact { // the units that a window has leased come back after half of it
				for range 10 {
					if !admitted(t, s, critical()) {
						t.Fatal("denied")
					}
				}
				left -= 10
			}
			take(t, s, slow, left)
			take(t, s, batch(), 30)
			take(t, s, slow, 0)
			take(t, s, critical(), 20)
			take(t, s, batch(), 0)
			take(t, s, desc("account", "b", "priority", "batch"), 80) // another account
		}))
	}
}

// Two replicas share the counts and the floor, also if one of them has rules without floors.
func TestReplicasShareFloors(t *testing.T) {
	for name, rules := range map[string]string{
		"equal rules":          account("fixed window", "floor: 0.2"),
		"a replica without":    account("fixed window"),
		"a replica with other": account("fixed window", "value: x, floor: 0.5", "floor: 0.2"),
	} {
		t.Run(name, virtually(func(t *testing.T) {
			b := redistest.NewBubble(t)
			one, two := newServiceOn(t, b.Client(nil), account("fixed window", "floor: 0.2"), Options{}), newServiceOn(t, b.Client(nil), rules, Options{})
			take(t, one, batch(), 80)
			if name != "a replica without" {
				take(t, two, batch(), 0)
			}
			take(t, two, critical(), 20)
			take(t, one, critical(), 0)
		}))
	}
}

// Floor 0 is the limit itself: a random sequence of calls gets the same answers as without the entry of the class.
func TestFloorZeroIsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
		o := Options{Limiter: hybrid.Config{Mode: hybrid.ModeExact}, LegacyHeaders: true}
		plain, classed := inMemory(t, account("token bucket"), o), inMemory(t, account("token bucket", "value: batch, floor: 0", "value: x, floor: 0.3"), o)
		for i := range 300 {
			name, n := fmt.Sprint(rng.IntN(2)), rng.Uint64N(8)
			a, b := desc("account", name), desc("account", name, "priority", "batch")
			for _, d := range []*ratelimit.RateLimitDescriptor{a, b} {
				switch hits(d, n); {
				case i%7 == 0:
					back(d, n)
				case i%5 == 0:
					d.HitsAddend = nil
				}
			}
			one, err1 := plain.ShouldRateLimit(t.Context(), request("shop", a))
			two, err2 := classed.ShouldRateLimit(t.Context(), request("shop", b))
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			if got, want := short(two)+headersOf(two), short(one)+headersOf(one); untimed(got) != untimed(want) {
				t.Fatalf("call %d: with floor 0 %s, without %s", i, got, want)
			}
		}
	})
}

// untimed takes the times out of an answer, because two services are not asked at one moment.
func untimed(text string) string {
	out := ""
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "Retry-After"), strings.HasPrefix(line, "RateLimit-Reset"):
		default:
			before, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ";t=")
			out += before + "\n"
		}
	}
	return out
}

// A higher floor never admits more calls of its class.
func TestHigherFloorsAdmitLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(testenv.Seed(t), 2))
		for range 3 {
			low := 0.02 * float64(1+rng.IntN(12))
			high := low + 0.25
			s := inMemory(t, account("token bucket", fmt.Sprintf("value: low, floor: %v", low), fmt.Sprintf("value: high, floor: %v", high)),
				Options{Limiter: hybrid.Config{Mode: hybrid.ModeExact}})
			got := map[string]int{}
			for _, class := range []string{"low", "high"} {
				for range 120 {
					if admitted(t, s, desc("account", class, "priority", class)) {
						got[class]++
					}
				}
			}
			if got["high"] >= got["low"] || got["low"] > 100 {
				t.Errorf("floors %v and %v: %v", low, high, got)
			}
		}
	})
}

// The figures of a class are those of hybrid.Limiter.Policy.
func TestFiguresOfFloors(t *testing.T) {
	for _, algorithm := range []hybridlimit.Algorithm{
		hybridlimit.AlgTokenBucket, hybridlimit.AlgLeakyBucket, hybridlimit.AlgFixedWindow, hybridlimit.AlgSlidingWindow,
	} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		for _, rate := range []int64{1, 2, 3, 10, 99, 100, 101, 1000} {
			limit := hybridlimit.Limit{Algorithm: algorithm, Rate: rate, Period: time.Minute}
			if algorithm == hybridlimit.AlgTokenBucket {
				limit.Burst = rate * 3
			}
			floors := []float64{1e-9, 0.01, 0.07, 0.1, 0.2, 0.3333, 0.5}
			var classes []hybrid.Class
			for _, f := range floors {
				classes = append(classes, hybrid.Class{Name: className(f), Floor: f})
			}
			l, err := hybrid.New(rdb, limit, hybrid.Config{Name: "x", Classes: classes, FallbackFloor: -1, Overshoot: -1})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range append(floors, 0) {
				if got, want := ofFloor(limit, f), viewOf(l, f).Policy("k").Limit; got != want {
					t.Errorf("%v above %v: %v, want %v", limit, f, got, want)
				}
			}
			l.Close()
		}
	}
}

var floorModes = []struct {
	name   string
	inside []string
	o      Options
	steps  []step
}{
	{"costs of one request", []string{"value: batch, floor: 0.2"}, Options{}, []step{
		addend(to("ok: ok(80) ok(40)", critical(), batch()), 20),
		addend(to("over: ok(19) over(0)", critical(), batch()), 41),
		addend(to("over: over(0) over(0)", batch(), critical()), 41), // takes the 19 that are left
		to("over: over(0)", critical()),
	}},
	{"classes of one request", []string{"value: batch, floor: 0.2"}, Options{AskCosts: true}, []step{
		// Both descriptors take units. ModeExact asks for them in this order.
		addend(to("ok: ok(80) ok(40)", critical(), batch()), 20),
		to("ok: ok(40) ok(60)", hits(batch(), 0), hits(critical(), 0)),
		addend(to("over: ok(60) over(0)", critical(), batch()), 41),
		addend(to("over: over(0) ok(60)", batch(), critical()), 41),
		addend(to("ok: ok(0)", batch()), 40), // a denied request has taken nothing
	}},
	{"addends", []string{"value: batch, floor: 0.2"}, Options{}, []step{
		to("over: over(0)", hits(batch(), 81)), // and takes the 80 that are left
		to("over: over(0)", hits(batch(), 0)),
		to("ok: ok(20)", hits(critical(), 0)),
		to("ok: ok(10)", back(batch(), 10)),
		to("ok: ok(0)", hits(batch(), 10)),
		to("ok: ok(0)", hits(critical(), 20)),
		to("over: over(0)", critical()),
	}},
	{"a cost leaves the floor", []string{"value: batch, floor: 0.2"}, Options{}, []step{
		addend(to("over: over(0)", batch()), 81), // takes 80
		addend(to("over: over(0)", batch()), 200),
		to("ok: ok(20)", hits(critical(), 0)),
	}},
	{"addend of a request", []string{"value: batch, floor: 0.2"}, Options{AskCosts: true}, []step{
		addend(to("over: over(0)", batch()), 81), // takes nothing
		addend(to("ok: ok(0)", batch()), 80),
	}},
	{"a class in shadow", []string{"value: batch, floor: 0.2, shadow_mode: true"}, Options{}, []step{
		addend(to("ok: ok(0)", batch()), 200),
		to("ok: ok(0)", batch()),
		to("ok: ok(20)", hits(critical(), 0)),
		to("ok: ok(19) ok(0)", critical(), batch()),
	}},
	{"a class that is a quota", []string{"value: batch, floor: 0.2, quota_mode: true"}, Options{}, []step{
		addend(to("over: over(0)", batch()), 200), // the only quota is used up
		to("ok: ok(20)", hits(critical(), 0)),
	}},
	{"strict", []string{"value: batch, floor: 0.2"}, Options{StrictCompat: true}, []step{
		addend(to("ok: ok(0)", batch()), 80),
		to("over: ok(19) over(0)", critical(), batch()),
	}},
	{"global shadow", []string{"value: batch, floor: 0.2"}, Options{Shadow: true}, []step{
		addend(to("ok: ok(0)", batch()), 80),
		to("ok: over(0)", batch()),
		to("ok: ok(19)", critical()),
	}},
	{"global quota", []string{"value: batch, floor: 0.2"}, Options{Quota: true}, []step{
		addend(to("ok: ok(0)", batch()), 80),
		to("over: over(0)", batch()),
		to("ok: over(0) ok(19)", batch(), critical()), // a quota is left
	}},
	{"unknown values", []string{"floor: 0.5", "value: batch, floor: 0.2", "value: critical, floor: 0"}, Options{}, []step{
		addend(to("ok: ok(0)", desc("account", "a", "priority", "typo")), 50),
		addend(to("ok: ok(0)", batch()), 30),
		addend(to("ok: ok(0)", desc("account", "a", "priority", "critical")), 20),
	}},
	{"limit in the descriptor", []string{"value: batch, floor: 0.2"}, Options{}, []step{
		addend(to("ok: ok(0)", given(batch(), 100, daily, 0)), 100), // the limit replaces the rule, also its floor
		addend(to("ok: ok(0)", batch()), 80),
	}},
}

// TestModesOfFloors checks each mode. ModeExact: no class of the process holds units that another one misses.
func TestModesOfFloors(t *testing.T) {
	for _, c := range floorModes {
		t.Run(c.name, virtually(func(t *testing.T) {
			c.o.Limiter.Mode = hybrid.ModeExact
			s := inMemory(t, account("token bucket", c.inside...), c.o)
			for i, one := range c.steps {
				if got := ask(t, s, one.req); got != one.want {
					t.Errorf("step %d: %s, want %s", i, got, one.want)
				}
			}
		}))
	}
}

// The modes and the names of a limit hold for its classes.
func TestClassesInherit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := account("token bucket", "value: batch, floor: 0.2")
		for mode, want := range map[string]string{"shadow_mode": "ok: ok(0) ok(0)", "quota_mode": "ok: over(0) ok(0)"} {
			s := inMemory(t, strings.Replace(rules, "key: account", "key: account\n  "+mode+": true", 1), Options{})
			other := hits(desc("account", "b", "priority", "batch"), 80)
			if got := ask(t, s, addend(to("", batch(), other), 200).req); got != want {
				t.Errorf("%s: %s", mode, got)
			}
		}
		named := strings.Replace(rules, "rate_limit: {", "rate_limit: {name: all, ", 1)
		s := inMemory(t, named+"- key: free\n  rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: all}]}\n", Options{})
		if got := ask(t, s, request("shop", batch(), desc("free", ""))); got != "ok: ok ok(0)" {
			t.Errorf("replaced: %s", got)
		}
		zero := inMemory(t, strings.Replace(rules, "100", "0", 1), Options{})
		if got := ask(t, zero, request("shop", batch())); got != "over: over(0)" {
			t.Errorf("a limit of 0: %s", got)
		}
	})
}

// The headers of a class have its figures, and a name of their own.
func TestHeadersOfFloors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for algorithm, want := range map[string]string{
			"token bucket": `RateLimit-Policy: "100/year floor 0.2";q=80;w=25228800
RateLimit: "100/year floor 0.2";r=79
RateLimit-Limit: 100
RateLimit-Remaining: 79`,
			"fixed window": `RateLimit-Policy: "100/year floor 0.2";q=80;w=31536000
RateLimit: "100/year floor 0.2";r=79
RateLimit-Limit: 80
RateLimit-Remaining: 79`,
		} {
			s := inMemory(t, account(algorithm, "value: batch, floor: 0.2"), Options{LegacyHeaders: true})
			res, err := s.ShouldRateLimit(t.Context(), request("shop", batch()))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(untimed(headersOf(res))); got != want {
				t.Errorf("%s:\n%s\nwant\n%s", algorithm, got, want)
			}
		}
	})
}

// A class has counters of its own.
func TestMetricsOfFloors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, account("token bucket", "value: batch, floor: 0.2", "detailed_metric: true, floor: 0.5"), Options{Limiter: hybrid.Config{Mode: hybrid.ModeExact}})
		ask(t, s, addend(to("", batch()), 80).req)
		ask(t, s, request("shop", batch()))
		ask(t, s, addend(to("", critical()), 7).req)
		ask(t, s, request("shop", desc("account", "b", "priority", "x")))
		for name, want := range map[string][4]uint64{ // total, over, near, within
			"shop.account": {7, 0, 7, 7}, "shop.account.priority_batch": {81, 1, 16, 80}, "shop.account_b.priority_x": {1, 0, 0, 1},
		} {
			c := s.metrics.rule(name)
			if got := [4]uint64{c.total.Load(), c.over.Load(), c.near.Load(), c.within.Load()}; got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	})
}
