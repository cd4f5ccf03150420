package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// List shows each limiter with a key, a process or a switch in Redis, and -n keys of
// each.
func TestList(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	finds(t, url, []string{"list"}, "this Redis has no key of any limiter, with -prefix hl")
	finds(t, url, []string{"list", "-name", "api"}, `no limiter "api" is known to this Redis`)
	for _, key := range []string{"alice", "bob", "carol", "y}:web:z"} {
		used(t, rdb, hourly, global.Config{Name: "api"}, key, 3)
	}
	used(t, rdb, hybridlimit.SlidingLog(10, time.Hour), global.Config{Name: "log"}, "k", 2)
	used(t, rdb, hourly, global.Config{Name: "shop-api", Prefix: "shop"}, "k", 2)
	expect(t, url, []string{"switch", "-name", "dark", "-force", "deny_all"}, "deny_all")
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	if err := rdb.Set(t.Context(), names.State(0, "api", "odd"), "9z", 0).Err(); err != nil {
		t.Fatal(err)
	}
	before := dump(t, rdb)
	out := expect(t, url, []string{"list"}, "api: 0 processes, switch normal, never set\n", "KEY", "WHEN LAST WRITTEN", "EXPIRES IN",
		`"alice"`, "7.0 left", "3h0m", `"odd"`, "unreadable", `"y}:web:z"`, "dark: 0 processes, switch deny_all, since 20", "log: 0 processes", `"k"`, "entries")
	if strings.Contains(out, "web:") && !strings.Contains(out, `}:web:`) || strings.Contains(out, "shop") || strings.Contains(out, "more") {
		t.Errorf("%s", out)
	}
	expect(t, url, []string{"list", "-name", "api", "-limit", "1/h burst 10"}, "LEFT NOW", `"alice"`, "7.0 left", "7 of 10", `"odd"`, "- (a state that cannot be read)")
	expect(t, url, []string{"list", "-name", "log", "-limit", "1/h burst 10"}, `"k"`, "- (a log)")
	expect(t, url, []string{"list", "-name", "dark"}, "dark: 0 processes, switch deny_all")
	expect(t, url, []string{"list", "-prefix", "shop"}, "shop-api: 0 processes")
	out = expect(t, url, []string{"list", "-name", "api", "-n", "2"}, "There are more keys: -n shows more than 2")
	if keys := strings.Count(out, "left") - strings.Count(out, "LEFT NOW"); keys > 2 {
		t.Errorf("%d keys in\n%s", keys, out)
	}
	if after := dump(t, rdb); after != before {
		t.Errorf("list changed\n%s to\n%s", before, after)
	}
}

// A limiter without a key is in the list if a process has it. Processes with several
// limiters count for each of them.
func TestListCountsProcesses(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb, url := srv.Client(t), urlOf(srv)
	alive(t, rdb, "api", "login")
	alive(t, srv.Client(t), "login", "mail")
	expect(t, url, []string{"list"}, "api: 1 processes, limit 1/h burst 10, switch normal", "login: 2 processes, limit 1/h burst 10, switch normal", "mail: 1 processes, limit 1/h burst 10, switch normal")
	expect(t, url, []string{"list", "-name", "login"}, "login: 2 processes")
	if out := expect(t, url, []string{"switch", "-name", "login", "shadow"}, "2 processes receive it"); strings.Contains(out, "unknown") {
		t.Error(out)
	}
	// Processes of a group whose names were evicted count for every limiter, as in the fleet.
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	rdb.Del(t.Context(), names.GroupNames(groups.ID([]string{groups.TagsTerm(lua.DefaultTags), "login", "mail", groups.LimitTerm("login", "1/h burst 10"), groups.LimitTerm("mail", "1/h burst 10")})))
	expect(t, url, []string{"list", "-name", "api"}, "api: 2 processes")
}
