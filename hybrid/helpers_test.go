package hybrid_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// quiet discards the log, for tests that do not read it.
var quiet = slog.New(slog.DiscardHandler)

// TestMain silences go-redis, which reports every failed dial on stderr.
func TestMain(m *testing.M) {
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// still returns a limit that refills nothing while a test runs. So the units
// missing from the bucket are the debited units.
func still(burst int64) hybridlimit.Limit { return hybridlimit.TokenBucket(1, time.Hour, burst) }

// oneDial is for a Redis that is not there. Without it go-redis dials again in
// the background for half a second. Clients of a bubble have it already.
func oneDial(o *redis.Options) { o.DialerRetries = 1 }

// patient sets long time-outs and a breaker that stays closed. It is for tests
// of the rules, not of the clock: they must pass on a busy machine.
func patient(cfg hybrid.Config) hybrid.Config {
	cfg.MaxWait = 5 * time.Second
	cfg.Hub.SyncTimeout = 10 * time.Second
	cfg.Hub.Breaker = breaker.Config{Failures: 1 << 20, FailureRatio: -1, SlowCall: -1}
	return cfg
}

// newLimiter calls hybrid.New, and closes the limiter when the test ends. It
// discards the log, unless cfg has a logger.
func newLimiter(tb testing.TB, rdb redis.UniversalClient, limit hybridlimit.Limit, cfg hybrid.Config) *hybrid.Limiter {
	tb.Helper()
	if cfg.Name == "" {
		cfg.Name = "api"
	}
	if cfg.Hub.Logger == nil {
		cfg.Hub.Logger = quiet
	}
	l, err := hybrid.New(rdb, limit, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

func newHub(tb testing.TB, rdb redis.UniversalClient, cfg hybrid.HubConfig) *hybrid.Hub {
	tb.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	h, err := hybrid.NewHub(rdb, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { h.Close() })
	return h
}

func add(tb testing.TB, h *hybrid.Hub, limit hybridlimit.Limit, cfg hybrid.Config) *hybrid.Limiter {
	tb.Helper()
	l, err := h.Limiter(limit, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// ready waits until the limiters are ready, and until each of them counts them
// all in its fleet.
func ready(tb testing.TB, ls ...*hybrid.Limiter) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, l := range ls {
		if err := l.Ready(ctx); err != nil {
			tb.Fatal(err)
		}
	}
	for _, l := range ls {
		redistest.Eventually(tb, 30*time.Second, "every process counts the whole fleet", func() bool {
			return l.Stats().Fleet >= int64(len(ls))
		})
	}
}

// ask calls AllowN, and fails the test on an error.
func ask(tb testing.TB, l hybridlimit.Limiter, key string, n int64) hybridlimit.Result {
	tb.Helper()
	res, err := l.AllowN(context.Background(), key, n)
	if err != nil {
		tb.Errorf("AllowN(%q, %d): %v", key, n, err)
	}
	return res
}

// groupOf returns the id of the group of processes with these limiters, all with one limit, of
// the default tags.
func groupOf(limit hybridlimit.Limit, limiters ...string) string {
	terms := []string{groups.TagsTerm(lua.DefaultTags)}
	text, err := limit.MarshalText()
	if err != nil {
		panic(err)
	}
	for _, name := range limiters {
		terms = append(terms, name, groups.LimitTerm(name, string(text)))
	}
	return groups.ID(terms)
}

// heartbeatsOf returns the key of the heartbeats of these processes, of the default prefix.
func heartbeatsOf(limit hybridlimit.Limit, limiters ...string) string {
	return fleetNames.Group(groupOf(limit, limiters...))
}

// ofTheFleet reports whether a script, by its digest or its source, is a heartbeat or tells
// settings.
func ofTheFleet(script string) bool {
	return slices.Contains([]string{lua.Fleet.SHA, lua.Fleet.Source, lua.Settings.SHA, lua.Settings.Source}, script)
}

// inRedis returns the state of a key of the default prefix and tags, or the
// zero State if Redis has none.
func inRedis(tb testing.TB, rdb redis.UniversalClient, name, key string) wire.State {
	tb.Helper()
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	raw, err := rdb.Get(context.Background(), names.State(names.Tag(key), name, key)).Result()
	if err == redis.Nil {
		return wire.State{}
	}
	if err != nil {
		tb.Fatal(err)
	}
	state, ok := wire.DecodeState(raw)
	if !ok {
		tb.Fatalf("state of %q cannot be decoded: %q", key, raw)
	}
	return state
}

// debited returns the units that Redis has debited for keys.
func debited(tb testing.TB, rdb redis.UniversalClient, name string, keys ...string) (units int64) {
	tb.Helper()
	for _, k := range keys {
		units += inRedis(tb, rdb, name, k).Since
	}
	return units
}

// balance checks the equation in the comment of Stats. It returns the units
// that Redis has debited, as far as the limiter knows.
func balance(tb testing.TB, s hybrid.Stats) int64 {
	tb.Helper()
	got := s.Paid + s.Granted - s.Refunded
	want := s.Admitted + s.Expired + s.Held + s.Lost - s.Owed - s.Dropped - s.Forgiven
	if got != want {
		tb.Errorf("paid %d + granted %d - refunded %d = %d, want %d = admitted %d + expired %d + held %d + lost %d - owed %d - dropped %d - forgiven %d",
			s.Paid, s.Granted, s.Refunded, got, want, s.Admitted, s.Expired, s.Held, s.Lost, s.Owed, s.Dropped, s.Forgiven)
	}
	return got
}

// explained reports whether limiters know of the units that Redis debited. On a slow
// machine, an ask without an envelope may have no answer in time: Redis may have debited
// its units too.
func explained(tb testing.TB, debited int64, all ...hybrid.Stats) bool {
	tb.Helper()
	var known, uncertain int64
	for _, s := range all {
		known, uncertain = known+balance(tb, s), uncertain+s.Uncertain
	}
	return debited >= known && debited <= known+uncertain
}

// paced calls f perSecond times a second, from several goroutines, however long
// f takes. stop ends this and waits for the last call.
func paced(perSecond, workers int, f func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	start := time.Now()
	for w := range workers {
		wg.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for sent := 0; ; {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				due := (int(time.Since(start).Microseconds())*perSecond/1_000_000 + w) / workers
				if most := 1 + perSecond/workers/20; due-sent > most {
					sent = due - most // calls that a stalled machine missed by 50 ms are not made up for
				}
				for ; sent < due; sent++ {
					f()
				}
			}
		})
	}
	var once sync.Once
	return func() {
		once.Do(func() { close(done) })
		wg.Wait()
	}
}

// shutdown shuts the limiters down, and fails the test on an error.
func shutdown(tb testing.TB, ls ...*hybrid.Limiter) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for i, l := range ls {
		if err := l.Shutdown(ctx); err != nil {
			tb.Errorf("limiter %d: Shutdown: %v", i, err)
		}
	}
}

// sum adds up one figure over limiters.
func sum(ls []*hybrid.Limiter, of func(hybrid.Stats) int64) (total int64) {
	for _, l := range ls {
		total += of(l.Stats())
	}
	return total
}

func keysOf(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(prefix, i)
	}
	return out
}
