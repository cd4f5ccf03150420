package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// The rights in SECURITY.md and docs/operations.md together are enough for every
// command.
func TestRightsOfTheTool(t *testing.T) {
	t.Parallel()
	security, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	operations, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(security), "\nACL SETUSER ")
	line, _, _ = strings.Cut(line, "\n")
	more := regexp.MustCompile("The command needs `([^`]+)` besides").FindStringSubmatch(string(operations))
	if line == "" || more == nil {
		t.Fatal("no rights in the documents")
	}
	srv := redistest.New(t)
	rdb := srv.Client(t)
	words := []any{"ACL", "SETUSER"}
	for _, w := range strings.Fields(line + " " + more[1]) {
		words = append(words, w)
	}
	redistest.Do(t, rdb, words...)
	url := "redis://limiter:PASSWORD@" + srv.Addr()
	used(t, rdb, hourly, global.Config{Name: "api"}, "alice", 3)
	expect(t, url, []string{"inspect", "-name", "api", "alice"}, "bucket had 7.0 units left")
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "alice"}, "7 of 10 units left")
	expect(t, url, []string{"reset", "-name", "api", "-limit", "1/h burst 10", "alice"}, "reset")
	expect(t, url, []string{"switch", "-name", "api", "-force", "shadow"}, "api: shadow, was normal")
	expect(t, url, []string{"switch", "-name", "api"}, "api: shadow")
	expect(t, url, []string{"top", "-name", "api"}, "1 keys of api")
	expect(t, url, []string{"list"}, "api: 0 processes, switch shadow", `"alice"`)
	expect(t, url, []string{"inspect", "-name", "api", "-digest", (lua.Names{}).Digest("api", "alice")}, `api "alice": when last written`)
	finds(t, url, []string{"inspect", "-name", "none", "alice"}, "no limiter \"none\" is known")
	finds(t, url, []string{"switch", "-name", "none"}, "no limiter \"none\" is known")
	// Without the rights the command fails, instead of showing less.
	redistest.Do(t, rdb, "ACL", "SETUSER", "limiter", "-scan", "-get")
	if status, _, errOut := cli(t, url, "top", "-name", "api"); status != 1 || !strings.Contains(errOut, "NOPERM") {
		t.Errorf("without +scan: %d, %s", status, errOut)
	}
	if status, _, errOut := cli(t, url, "list"); status != 1 || !strings.Contains(errOut, "NOPERM") {
		t.Errorf("list without +scan: %d, %s", status, errOut)
	}
	finds(t, url, []string{"switch", "-name", "none"}, "no limiter \"none\" has a process or a switch, with -prefix hl and -tags 16; whether it has keys is unknown: NOPERM")
}

// A Redis user with only the switch rights of SECURITY.md can set a switch. The tool
// once set the switch and then failed, because the user may not count processes.
func TestRightsToSwitch(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile("A user that only sets switches .* needs `([^`]+)`").FindSubmatch(text)
	if rights == nil {
		t.Fatal("no rights in SECURITY.md")
	}
	srv := redistest.New(t)
	set := []any{"ACL", "SETUSER", "switcher", "on", ">PASSWORD", "resetkeys", "~hl:v2:*", "-@all"}
	for _, w := range strings.Fields(string(rights[1])) {
		set = append(set, w)
	}
	rdb := srv.Client(t)
	redistest.Do(t, rdb, set...)
	alive(t, rdb, "api")
	url := "redis://switcher:PASSWORD@" + srv.Addr()
	expect(t, url, []string{"switch", "-name", "api", "shadow"}, "api: shadow, was normal\n", "The number of processes that receive it is unknown: NOPERM")
	expect(t, url, []string{"switch", "-name", "api"}, "api: shadow, since 20")
	expect(t, url, []string{"limit", "-name", "api", "-user", "bob", "5/h"}, `api "user:bob": 5/h, was: no limit of the fleet`, "The number of processes that receive it is unknown: NOPERM")
	expect(t, url, []string{"limit", "-name", "api", "-list"}, `"user:bob"`)
}
