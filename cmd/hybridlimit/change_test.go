package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestReset(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	used(t, rdb, hourly, global.Config{Name: "api"}, "alice", 12)
	expect(t, url, []string{"reset", "-name", "api", "-limit", "1/h burst 10", "alice"}, `reset; before, it was denied for`, "Processes may spend units that they have leased")
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "alice"}, "allowed because the bucket has 10 of 10 units left")
	used(t, rdb, hybridlimit.SlidingLog(10, time.Hour), global.Config{Name: "log"}, "k", 10)
	expect(t, url, []string{"reset", "-name", "log", "-limit", "10/h sliding log", "k"}, "reset; before, it was denied")
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

func TestSwitch(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	finds(t, url, []string{"switch", "-name", "api"}, `no limiter "api" is known to this Redis`, "api: normal, never set\n")
	expect(t, url, []string{"switch", "-name", "api", "deny_all"}, "api: deny_all, was normal\n", "No process has a limiter of this name now, with -prefix hl and -tags 16.")
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
