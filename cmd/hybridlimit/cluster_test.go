package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// In a cluster, all masters are scanned, and a key with braces is found in its slot.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3)
	rdb := c.Client(t)
	url := "redis://" + c.Nodes[0].Addr() + "?addr=" + c.Nodes[1].Addr()
	var want []string
	for i := range 30 {
		key := fmt.Sprintf("{user%02d}", i)
		want = append(want, key)
		used(t, rdb, hourly, global.Config{Name: "api"}, key, 2)
	}
	expect(t, url, []string{"inspect", "-cluster", "-name", "api", "-limit", "1/h burst 10", "{user07}"}, `api "{user07}": allowed because the bucket has 8 of 10 units left`, "switch      normal, never set")
	expect(t, url, []string{"reset", "-cluster", "-name", "api", "-limit", "1/h burst 10", "{user07}"}, "reset to 1/h burst 10; before")
	expect(t, url, []string{"switch", "-cluster", "-name", "api", "-force", "shadow"}, "api: shadow, was normal")
	out := expect(t, url, []string{"top", "-cluster", "-name", "api", "-n", "100", "-rate", "100000"}, "30 keys of api, complete")
	for _, key := range want {
		if !strings.Contains(out, `"`+key+`"`) {
			t.Errorf("no %s in\n%s", key, out)
		}
	}
	used(t, rdb, hourly, global.Config{Name: "web"}, "one", 2)
	out = expect(t, url, []string{"list", "-cluster", "-n", "100", "-rate", "100000"}, "api: 0 processes, switch shadow, since 20", "web: 0 processes, switch normal, never set", `"one"`)
	for _, key := range want {
		if strings.Count(out, `"`+key+`"`) != 1 {
			t.Errorf("no %s, or several, in\n%s", key, out)
		}
		expect(t, url, []string{"inspect", "-cluster", "-name", "api", "-rate", "100000", "-digest", (lua.Names{}).Digest("api", key)}, fmt.Sprintf("api %q: ", key))
	}
}

// A node of a cluster has only a part of the keys, so every command fails without
// -cluster. Top once called its output of one node complete.
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
