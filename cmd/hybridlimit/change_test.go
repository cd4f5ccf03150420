package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

func TestReset(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	used(t, rdb, hourly, global.Config{Name: "api"}, "alice", 12)
	expect(t, url, []string{"reset", "-name", "api", "-limit", "1/h burst 10", "alice"}, `reset to 1/h burst 10; before, it was denied for`, "Processes may spend units that they have leased")
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "alice"}, "allowed because the bucket has 10 of 10 units left")
	used(t, rdb, hybridlimit.SlidingLog(10, time.Hour), global.Config{Name: "log"}, "k", 10)
	expect(t, url, []string{"reset", "-name", "log", "-limit", "10/h sliding log", "k"}, "reset to 10/h sliding log; before, it was denied")
	// A limit of another algorithm would leave a state that the fleet cannot read.
	used(t, rdb, hybridlimit.SlidingLog(10, time.Hour), global.Config{Name: "log"}, "k", 10)
	before := dump(t, rdb)
	for _, c := range []struct{ name, limit, key, want string }{
		{"api", "10/h sliding log", "alice", "is a log, but Redis has a bucket under this key"},
		{"log", "10/h", "k", "is a bucket, but Redis has a log under this key"},
		{"api", "10/h fixed window", "alice", "is a fixed window, but Redis has a bucket under this key"},
	} {
		status, _, errOut := cli(t, url, "reset", "-name", c.name, "-limit", c.limit, c.key)
		if status != 2 || !strings.Contains(errOut, c.want) {
			t.Errorf("%+v: %d, %s", c, status, errOut)
		}
	}
	if after := dump(t, rdb); after != before {
		t.Errorf("what was refused changed\n%s to\n%s", before, after)
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	finds(t, url, []string{"limit", "-name", "api"}, `no limiter "api" is known to this Redis`, "api: no limit of the fleet\n")
	finds(t, url, []string{"limit", "-name", "api", "2/h burst 20"}, `-name ("api"): no process has a limiter of this name now, with -prefix hl and -tags 16, so nothing was changed`)
	expect(t, url, []string{"limit", "-name", "api", "-force", "2/h burst 20"}, "api: 2 per 1h0m0s, burst 20 (token bucket), was: no limit of the fleet\n", "No process has a limiter of this name now")
	l, err := hybrid.New(rdb, hourly, hybrid.Config{Name: "api", Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hears := func(want string) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, "the process hears of "+want, func() bool { return l.Limit().String() == want })
	}
	hears("2 per 1h0m0s, burst 20 (token bucket)")
	expect(t, url, []string{"limit", "-name", "api", "-part", "0.25", "3/h burst 30"}, "api: 3 per 1h0m0s, burst 30 (token bucket) for a part of 0.25 of the keys, was: 2 per 1h0m0s, burst 20 (token bucket), since 20", "1 processes receive it within a second")
	hears(hourly.String())
	expect(t, url, []string{"limit", "-name", "api"}, "api: 3 per 1h0m0s, burst 30 (token bucket) for a part of 0.25 of the keys, since 20")
	expect(t, url, []string{"limit", "-name", "api", "4/h burst 40"}, "api: 4 per 1h0m0s, burst 40 (token bucket), was: 3 per")
	hears("4 per 1h0m0s, burst 40 (token bucket)")
	expect(t, url, []string{"limit", "-name", "api", "-clear"}, "api: no limit of the fleet, was: 4 per")
	hears(hourly.String())
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	if err := rdb.Set(t.Context(), names.FleetLimit("api"), "1 5 of a later version", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := cli(t, url, "limit", "-name", "api"); status == 0 || !strings.Contains(errOut, "of a later version") {
		t.Errorf("an unknown limit: status %d, %s", status, errOut)
	}
	expect(t, url, []string{"limit", "-name", "api", "-clear"}, "api: no limit of the fleet, was: a limit that this version does not know")
}

func TestSwitch(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	finds(t, url, []string{"switch", "-name", "api"}, `no limiter "api" is known to this Redis`, "api: normal, never set\n")
	finds(t, url, []string{"switch", "-name", "api", "deny_all"}, `-name ("api"): no process has a limiter of this name now, with -prefix hl and -tags 16, so nothing was changed`)
	expect(t, url, []string{"switch", "-name", "api", "-force", "deny_all"}, "api: deny_all, was normal\n", "No process has a limiter of this name now, with -prefix hl and -tags 16.")
	l, err := hybrid.New(rdb, hourly, hybrid.Config{Name: "api", Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hears := func(s hybrid.Switch) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, "the process hears of it", func() bool { return l.Stats().Switch == s })
	}
	hears(hybrid.SwitchDenyAll)
	expect(t, url, []string{"switch", "-name", "api", "shadow"}, "api: shadow, was deny_all\n", "1 processes receive it within a second")
	hears(hybrid.SwitchShadow)
	expect(t, url, []string{"switch", "-name", "api"}, "api: shadow, since 20")
	finds(t, url, []string{"inspect", "-name", "api", "k"}, "hybridlimit: no state under this key\n", "no state under this key", redisKey("api", "k"), "fleet       1 processes", "switch      shadow, since 20")
	finds(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "k"}, "hybridlimit: no state under this key\n", "no state under this key")
	expect(t, url, []string{"switch", "-name", "api", "normal"}, "api: normal, was shadow\n")
	hears(hybrid.SwitchNormal)
}
