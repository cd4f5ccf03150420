package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// rows returns the keys in the output of top.
func rows(out string) (keys []string) {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, `"`) {
			key, _, _ := strings.Cut(line[1:], `"`)
			keys = append(keys, key)
		}
	}
	return keys
}

func TestTop(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	for i, key := range []string{"a", "b", "c", "d"} {
		used(t, rdb, hourly, global.Config{Name: "api"}, key, int64(3*i+1)) // d is at 0
	}
	used(t, rdb, hourly, global.Config{Name: "api"}, "d", 100) // and now far in debt, down to a burst
	used(t, rdb, hourly, global.Config{Name: "other"}, "x", 9)
	used(t, rdb, hourly, global.Config{Name: "other"}, "y}:api:z", 9) // a key that looks like a name
	used(t, rdb, hybridlimit.SlidingLog(10, time.Hour), global.Config{Name: "log"}, "k", 2)
	out := expect(t, url, []string{"top", "-name", "api", "-by", "emptiest"}, "KEY", "-10.0 left", "3.0 left", "6.0 left", "9.0 left", "4 keys of api, complete")
	if got := strings.Join(rows(out), " "); got != "d c b a" {
		t.Errorf("emptiest: %s\n%s", got, out)
	}
	out = expect(t, url, []string{"top", "-name", "api", "-n", "2"}, "110", "4 keys of api")
	if got := strings.Join(rows(out), " "); got != "d c" {
		t.Errorf("busiest: %s\n%s", got, out)
	}
	expect(t, url, []string{"top", "-name", "log"}, `"k"`, "entries", "1 keys of log")
	finds(t, url, []string{"top", "-name", "nobody"}, `no limiter "nobody" is known to this Redis`, "0 keys of nobody, complete")
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	if err := rdb.Set(t.Context(), names.State(0, "api", "odd"), "9z", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, url, []string{"top", "-name", "api"}, "4 keys of api", "1 more keys have a state that this version cannot read.")
}

// A scan keeps to its rate and ends in time. The output says that it is incomplete.
func TestTopIsBounded(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	pipe := rdb.Pipeline()
	for i := range 20_000 {
		pipe.Set(t.Context(), fmt.Sprint("session:", i), "x", time.Hour)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	used(t, rdb, hourly, global.Config{Name: "api"}, "a", 1)
	before := redistest.Calls(t, rdb)["scan"]
	began := time.Now()
	expect(t, url, []string{"top", "-name", "api", "-rate", "1000", "-for", "500ms"}, "keys of api, incomplete: the scan ended after -for 500ms at -rate 1000")
	// 100 keys of Redis a page, ten pages a second: five and the first.
	if n := redistest.Calls(t, rdb)["scan"] - before; n > 6 {
		t.Errorf("%d pages in half a second", n)
	}
	if took := time.Since(began); took < 300*time.Millisecond && !testing.Short() {
		t.Errorf("ended after %v: it kept to no rate", took)
	}
	out := expect(t, url, []string{"top", "-name", "api", "-rate", "1000000"}, "1 keys of api, complete")
	if len(rows(out)) != 1 {
		t.Errorf("%s", out)
	}
}

// An error of one key fails the command, even if it comes after expected errors. A
// pipeline returns its first error, which nearly always is that a state is not a
// log.
func TestTopFailsWithAnyKey(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.Client(t)
	for _, key := range []string{"a", "b", "c"} {
		used(t, rdb, hourly, global.Config{Name: "api"}, key, 1)
	}
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	redistest.Do(t, rdb, "ACL", "SETUSER", "some", "on", ">PASSWORD", "resetkeys", "~"+names.State(names.Tag("a"), "api", "a"), "-@all", "+hello", "+scan", "+get", "+zcard", "+pttl", "+time")
	status, out, errOut := cli(t, "redis://some:PASSWORD@"+srv.Addr(), "top", "-name", "api")
	if status != 1 || out != "" || !strings.Contains(errOut, "NOPERM") {
		t.Errorf("%d, %s, %s", status, out, errOut)
	}
}

// answered is a hook that changes the answers of Redis.
type answered func(cmd redis.Cmder)

func (answered) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (answered) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (a answered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			a(cmd)
		}
		return err
	}
}

// reply is an error that Redis answers with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// A key that SCAN returns twice counts once, shown or not. Keys that have moved are
// counted separately.
func TestTopCountsKeysOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.Client(t)
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	var keys []string
	for i, key := range []string{"a", "b", "c"} {
		used(t, rdb, hourly, global.Config{Name: "api"}, key, int64(i+1))
		keys = append(keys, names.State(names.Tag(key), "api", key))
	}
	c := &connection{prefix: "hl", name: "api", tags: lua.DefaultTags, timeout: 30 * time.Second}
	newRanking := func() *ranking {
		return &ranking{by: "busiest", show: 1, seen: map[string]bool{}, of: map[string]*ranked{}, walk: walk{most: time.Second, rate: 1000}}
	}
	r := newRanking()
	for _, page := range [][]string{keys, keys, keys[1:]} {
		if err := r.page(t.Context(), c, rdb, page); err != nil {
			t.Fatal(err)
		}
	}
	var out printer
	if err := r.print(&out, c); err != nil || !strings.Contains(out.String(), "3 keys of api, complete") || len(r.of["api"].Top) != 1 || r.of["api"].Top[0].Key != "c" {
		t.Errorf("%v, %+v\n%s", err, r.of["api"].Top, out.String())
	}
	other := srv.Client(t)
	other.AddHook(answered(func(cmd redis.Cmder) {
		if args := cmd.Args(); len(args) == 2 && args[1] == keys[1] {
			cmd.SetErr(reply("MOVED 3999 127.0.0.1:6381"))
		}
	}))
	r = newRanking()
	if err := r.page(t.Context(), c, other, keys); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := r.print(&out, c); err != nil || !strings.Contains(out.String(), "2 keys of api, perhaps incomplete; ") || !strings.Contains(out.String(), "1 keys were moving to another node") {
		t.Errorf("%v\n%s", err, out.String())
	}
	other.AddHook(answered(func(cmd redis.Cmder) {
		if cmd.Name() == "time" {
			cmd.SetErr(errors.New("connection reset by peer"))
		}
	}))
	if err := r.page(t.Context(), c, other, keys); err == nil {
		t.Error("a page without Redis's time is no error")
	}
}
