package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// A node of a cluster has a part of the keys: none of the commands takes it for
// all there is. Top did, and said so.
func TestNodeOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3)
	for _, protocol := range []string{"2", "3"} {
		url := "redis://" + c.Nodes[0].Addr() + "?protocol=" + protocol
		for _, args := range [][]string{
			{"top", "-name", "api"},
			{"inspect", "-name", "api", "k"},
			{"switch", "-name", "api"},
			{"switch", "-name", "api", "shadow"},
			{"reset", "-name", "api", "-limit", "1/s", "k"},
		} {
			status, out, errOut := cli(t, url, args...)
			if status != 2 || out != "" || !strings.Contains(errOut, "-cluster (false) must be set: this Redis is a node of a cluster") {
				t.Errorf("protocol %s, %q: %d, %s, %s", protocol, args, status, out, errOut)
			}
		}
	}
}

// An error of one key is an error, also behind those that are expected: a
// pipeline returns the first, which nearly always is that a state is no log.
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

// answered is a hook that has Redis answer otherwise.
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

// Keys that SCAN names twice count once, shown or not; those that have moved are
// counted apart, and said.
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
	c := &connection{prefix: "hl", name: "api", tags: lua.DefaultTags, timeout: time.Second}
	newRanking := func() *ranking {
		return &ranking{by: "busiest", show: 1, seen: map[string]bool{}, walk: walk{most: time.Second, rate: 1000}}
	}
	r := newRanking()
	for _, page := range [][]string{keys, keys, keys[1:]} {
		if err := r.page(t.Context(), c, rdb, page); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := r.print(&out, c); err != nil || !strings.Contains(out.String(), "3 keys of api, all there are") || len(r.rows) != 1 || r.rows[0].key != "c" {
		t.Errorf("%v, %+v\n%s", err, r.rows, out.String())
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
	if err := r.print(&out, c); err != nil || !strings.Contains(out.String(), "2 keys of api, perhaps not all; ") || !strings.Contains(out.String(), "1 were on their way to another node") {
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
