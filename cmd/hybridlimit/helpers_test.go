package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// TestMain silences go-redis, which reports every failed dial on stderr. With
// HYBRIDLIMIT_TEST_MAIN it runs the program itself. Up to eight parallel tests run at a time,
// if the command line names no other number: most of their time, they wait for processes that
// hear of a change.
func TestMain(m *testing.M) {
	if os.Getenv("HYBRIDLIMIT_TEST_MAIN") != "" {
		main()
	}
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}

// cli runs the program against a server.
func cli(t *testing.T, url string, args ...string) (status int, out, errOut string) {
	t.Helper()
	return cliWith(t, url, "", args...)
}

// noRedis is an address at which no Redis listens.
const noRedis = "127.0.0.1:1"

// cliWith is cli with a standard input. If there is a server, commands wait 30 s for each
// reply, unless the arguments name another time-out.
func cliWith(t *testing.T, url, in string, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	if !strings.Contains(url, noRedis) && len(args) > 1 && !slices.Contains([]string{"check", "key", "periods", "version", "completion"}, args[0]) && !slices.Contains(args, "-timeout") {
		args = slices.Insert(slices.Clone(args), 1, "-timeout", "30s")
	}
	status = run(t.Context(), args, url, strings.NewReader(in), &o, &e)
	return status, o.String(), e.String()
}

// expect runs the program and requires success and texts, in this order.
func expect(t *testing.T, url string, args []string, wants ...string) string {
	t.Helper()
	status, out, errOut := cli(t, url, args...)
	if status != 0 || errOut != "" {
		t.Fatalf("%q: status %d, %s", args, status, errOut)
	}
	rest := out
	for _, want := range wants {
		at := strings.Index(rest, want)
		if at < 0 {
			t.Errorf("%q: no %q (in this order) in\n%s", args, want, out)
			continue
		}
		rest = rest[at+len(want):]
	}
	return out
}

// finds runs the program and requires exit status 3, a text in the error, and texts
// in the output, in this order.
func finds(t *testing.T, url string, args []string, fault string, wants ...string) {
	t.Helper()
	status, out, errOut := cli(t, url, args...)
	if status != 3 || !strings.Contains(errOut, fault) || strings.Count(errOut, "\n") != 1 {
		t.Errorf("%q: status %d, %s", args, status, errOut)
	}
	rest := out
	for _, want := range wants {
		at := strings.Index(rest, want)
		if at < 0 {
			t.Fatalf("%q: no %q (in this order) in\n%s", args, want, out)
		}
		rest = rest[at+len(want):]
	}
}

// redisKey returns the Redis key of a state, with the tool's defaults.
func redisKey(name, key string) string {
	n := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	return n.State(n.Tag(key), name, key)
}

func urlOf(srv *redistest.Server) string { return "redis://" + srv.Addr() }

// used charges units to a key with a limiter of the fleet.
func used(t *testing.T, rdb redis.UniversalClient, limit hybridlimit.Limit, cfg global.Config, key string, units int64) {
	t.Helper()
	cfg.Timeout = 30 * time.Second
	l, err := global.New(rdb, limit, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Charge(t.Context(), key, units); err != nil {
		t.Fatal(err)
	}
}

// alive starts a process with limiters, and waits for its heartbeat.
func alive(t *testing.T, rdb redis.UniversalClient, limiters ...string) {
	t.Helper()
	h, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	for _, name := range limiters {
		if _, err := h.Limiter(hourly, hybrid.Config{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var hourly = hybridlimit.TokenBucket(1, time.Hour, 10)

// dump returns all keys and values, without TTLs.
func dump(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	var b strings.Builder
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys) // Redis gives them in another order while it resizes its table
	for _, k := range keys {
		fmt.Fprintln(&b, k, rdb.Dump(t.Context(), k).Val())
	}
	return b.String()
}
