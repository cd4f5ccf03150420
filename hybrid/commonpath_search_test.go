//go:build search && !race

package hybrid_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// TestCommonPathIsFasterThanTheStandard checks the statement of README that a
// decision on a hot key takes less time than one of x/time/rate. In
// bench/RESULTS.md it takes about a third. The test compares the best of up to
// a hundred short rounds that take turns. So it fails because of a lock, a
// clock or an allocation on the fast path, and passes on a busy machine. The
// race detector slows the two unevenly, so the search runs the test without it.
func TestCommonPathIsFasterThanTheStandard(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	l := newLimiter(t, rdb, hybridlimit.PerSecond(1_000_000_000), hybrid.Config{})
	for start := time.Now(); l.Stats().Credit == 0; time.Sleep(10 * time.Millisecond) { // until N is known
		if time.Since(start) > time.Minute {
			t.Fatal("the limiter gives no credit after a minute")
		}
	}
	bare, ctx, key := rate.NewLimiter(1e9, 1e9), context.Background(), l.Handle("k")
	const calls, rounds = 20_000, 100
	best := fastest{}
	timed := func(name string, call func() bool) { best.timed(t, name, calls, call) }
	slow := func(name string) bool { return best[name] >= best["x/time/rate"] }
	for round := range rounds {
		timed("x/time/rate", bare.Allow)
		timed("Allow", func() bool { res, err := l.Allow(ctx, "k"); return err == nil && res.Allowed })
		timed("Bucket", func() bool { res, err := key.Allow(ctx); return err == nil && res.Allowed })
		if round >= 5 && !slow("Allow") && !slow("Bucket") {
			break
		}
	}
	for name, took := range best {
		t.Logf("%s: %v for %d decisions", name, took, calls)
	}
	if slow("Allow") || slow("Bucket") {
		t.Errorf("not faster than x/time/rate: %v", best)
	}
}

// TestCommonPathOfAllowAll checks that a call under two hot limits takes at most as long as fifteen calls under one. It takes
// about four: BenchmarkAllowAll. As above, the best rounds are compared.
func TestCommonPathOfAllowAll(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	h := newHub(t, rdb, hybrid.HubConfig{})
	limit := hybridlimit.PerSecond(1_000_000_000)
	user, all := add(t, h, limit, hybrid.Config{Name: "user"}), add(t, h, limit, hybrid.Config{Name: "all"})
	ready(t, user)
	ready(t, all)
	ctx, asks := context.Background(), []hybridlimit.Ask{{Limiter: user, Key: "k", N: 1}, {Limiter: all, Key: "k", N: 1}}
	const calls, rounds, most = 20_000, 100, 15
	best := fastest{}
	for round := range rounds {
		best.timed(t, "one", calls, func() bool { res, err := user.Allow(ctx, "k"); return err == nil && res.Allowed })
		best.timed(t, "both", calls, func() bool { res, err := hybridlimit.AllowAll(ctx, asks...); return err == nil && res.Allowed })
		if round >= 5 && best["both"] <= most*best["one"] {
			break
		}
	}
	t.Logf("%v for %d calls", best, calls)
	if best["both"] > most*best["one"] {
		t.Errorf("a call under two limits takes more than %d times as long as one under one: %v", most, best)
	}
}

// TestCommonPathOfAClass checks that a decision through a class takes at most a tenth longer than one without classes. As above,
// the best rounds are compared. The rounds have several keys, because the place of a key's state in memory changes the time of
// its decisions.
func TestCommonPathOfAClass(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: standIn()})
	defer rdb.Close()
	h := newHub(t, rdb, hybrid.HubConfig{})
	limit := hybridlimit.PerSecond(1_000_000_000)
	plain := add(t, h, limit, hybrid.Config{Name: "plain"})
	critical := add(t, h, limit, hybrid.Config{Name: "classed", Classes: []hybrid.Class{{Name: "rest", Floor: 0.2}}})
	rest, err := critical.Class("rest")
	if err != nil {
		t.Fatal(err)
	}
	ready(t, plain)
	ready(t, critical)
	ctx := context.Background()
	const calls, rounds, keys, most = 20_000, 200, 20, 1.1
	best := fastest{}
	ratio := func(name string) float64 { return float64(best[name]) / float64(best["plain"]) }
	for round := range rounds {
		k := fmt.Sprint("key", round%keys)
		for name, l := range map[string]*hybrid.Limiter{"plain": plain, "critical": critical, "rest": rest} {
			if _, err := l.Allow(ctx, k); err != nil { // asks Redis for the units
				t.Fatal(err)
			}
			best.timed(t, name, calls, func() bool { res, err := l.Allow(ctx, k); return err == nil && res.Allowed })
		}
		if round >= 5 && ratio("critical") <= most && ratio("rest") <= most {
			break
		}
	}
	t.Logf("%v for %d calls", best, calls)
	if ratio("critical") > most || ratio("rest") > most {
		t.Errorf("critical takes %.2f and a class %.2f times as long as a limiter without classes, want at most %v", ratio("critical"), ratio("rest"), most)
	}
}

// fastest is the time of the shortest round, by name.
type fastest map[string]time.Duration

// timed measures a round of calls, all of which are admitted.
func (f fastest) timed(t *testing.T, name string, calls int, call func() bool) {
	t.Helper()
	start := time.Now()
	for range calls {
		if !call() {
			t.Fatalf("%s is denied", name)
		}
	}
	if took := time.Since(start); f[name] == 0 || took < f[name] {
		f[name] = took
	}
}
