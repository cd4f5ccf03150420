package main

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// A switch or a limit fails if it cannot be told that processes hear of it. The command said that no process has the
// limiter, or that their number is unknown, with status 0.
func TestUnheard(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	for _, c := range []struct {
		key, want string
		spoil     []any
	}{
		{names.Groups(), "WRONGTYPE", []any{"HSET", names.Groups(), "a", "b"}},
		{names.Groups(), `no process can have written "text"`, []any{"SET", names.Groups(), "text"}},
		{names.Group("g1"), "WRONGTYPE", []any{"SET", names.Group("g1"), "text"}},
		{names.GroupNames("g1"), "WRONGTYPE", []any{"SADD", names.GroupNames("g1"), "a"}},
	} {
		do(t, rdb, "FLUSHALL")
		do(t, rdb, "SET", names.Groups(), "1 1 g1 1")
		do(t, rdb, "DEL", c.key)
		do(t, rdb, c.spoil...)
		for _, args := range [][]string{
			{"switch", "-name", "api", "deny_all"},
			{"limit", "-name", "api", "2/h burst 20"},
			{"limit", "-name", "api", "-clear"},
		} {
			status, out, errOut := cli(t, url, args...)
			if status != 1 || !strings.Contains(errOut, "whether processes hear of it is unknown") ||
				!strings.Contains(errOut, c.key+": "+c.want) || !strings.Contains(out, "api: ") {
				t.Errorf("%s, %q: status %d\n%s%s", c.spoil, args, status, out, errOut)
			}
		}
		// The change is made: it counts as soon as the key is mended.
		do(t, rdb, "DEL", c.key)
		expect(t, url, []string{"switch", "-name", "api"}, "api: deny_all, since 20")
	}
}

// The same without a switch: it is no answer that the limiter was never known.
func TestUncounted(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	do(t, srv.Client(t), "SADD", names.Groups(), "a")
	for _, command := range []string{"switch", "limit"} {
		status, _, errOut := cli(t, urlOf(srv), command, "-name", "api")
		if status != 1 || !strings.Contains(errOut, "the processes cannot be counted: "+names.Groups()+": WRONGTYPE") {
			t.Errorf("%s: status %d, %s", command, status, errOut)
		}
	}
}

// do sends a command with a reply of any type.
func do(t *testing.T, rdb *redis.Client, words ...any) {
	t.Helper()
	if err := rdb.Do(t.Context(), words...).Err(); err != nil {
		t.Fatalf("%s: %v", words, err)
	}
}
