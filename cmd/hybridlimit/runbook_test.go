package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/limitfile"
)

// program is a process as the page describes it: a limiter with a limit in the code, and a file.
type program struct {
	log   testenv.Log
	api   *hybrid.Limiter
	limit hybridlimit.Limit // in the code
}

func newProgram(t *testing.T, rdb redis.UniversalClient, file string) *program {
	t.Helper()
	p := &program{limit: hybridlimit.PerHour(10)}
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	if p.api, err = hub.Limiter(p.limit, hybrid.Config{Name: "api"}); err != nil {
		t.Fatal(err)
	}
	limits, err := limitfile.Watch(file, hub, limitfile.Config{Every: 100 * time.Millisecond, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limits.Close() })
	if err := hub.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// tried returns the keys of a thousand that have a limit of the fleet.
func (p *program) tried(t *testing.T) (keys []string) {
	t.Helper()
	for i := range 1000 {
		key := fmt.Sprint("user-", i)
		in, err := p.api.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if in.LimitFrom == hybrid.LimitFromFleet.String() {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestChangeALimitInProduction follows the page, in its order, with its commands, its file and its log lines, on two processes.
func TestChangeALimitInProduction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "\n## Change a limit in production\n")
	page, _, _ = strings.Cut(page, "\n## ")
	var commands [][]string
	for _, m := range regexp.MustCompile(`(?m)^ *\$ hybridlimit (.*)$`).FindAllStringSubmatch(page, -1) {
		commands = append(commands, words(m[1]))
	}
	_, content, _ := strings.Cut(page, "```json\n")
	content, _, _ = strings.Cut(content, "```")
	quoted := func(begin string) string { // a log line of the page
		m := regexp.MustCompile("`(" + begin + "[^`]*)`").FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("the page has no line %q", begin)
		}
		return m[1]
	}
	inForce, unusable, strange := quoted("hybridlimit: the settings"), quoted("hybridlimit: a file with"), quoted("hybridlimit: a file has")
	if len(commands) != 9 || content == "" {
		t.Fatalf("the page has the commands %q and the file %q", commands, content)
	}

	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	file := filepath.Join(t.TempDir(), "limits.json")
	replace := func(content string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	replace(content)
	all := []*program{newProgram(t, rdb, file), newProgram(t, rdb, file)}
	until := func(what string, is func(p *program) bool) {
		t.Helper()
		for _, p := range all {
			redistest.Eventually(t, 30*time.Second, what, func() bool { return is(p) })
		}
	}
	decides := func(limit string, from hybrid.LimitSource) {
		t.Helper()
		want, err := hybridlimit.ParseLimit(limit)
		if err != nil {
			t.Fatal(err)
		}
		until(limit, func(p *program) bool {
			s := p.api.LimitState()
			return s.InForce == want && s.Source == from && s.Configured == p.limit
		})
	}
	ofFile, ofFleet := "100/s burst 200", commands[2][len(commands[2])-1]
	decides(ofFile, hybrid.LimitFromSettings)

	// For the whole fleet.
	expect(t, url, commands[0], "api: no limit of the fleet")
	expect(t, url, commands[1], "2 processes receive it")
	until("the canary", func(p *program) bool { return len(p.tried(t)) > 0 })
	a, b := all[0].tried(t), all[1].tried(t)
	if fmt.Sprint(a) != fmt.Sprint(b) || len(a) < 60 || len(a) > 140 {
		t.Errorf("a tenth of 1000 keys: %d and %d keys, the same: %v", len(a), len(b), fmt.Sprint(a) == fmt.Sprint(b))
	}
	expect(t, url, commands[2], "2 processes receive it")
	decides(ofFleet, hybrid.LimitFromFleet)
	expect(t, url, commands[3], "no limit of the fleet, was: ")
	decides(ofFile, hybrid.LimitFromSettings)

	// For one key.
	of := func(from string) func(p *program) bool {
		return func(p *program) bool {
			in, err := p.api.Inspect(t.Context(), "user:alice")
			return err == nil && in.LimitFrom == from
		}
	}
	expect(t, url, commands[4], "2 processes receive it")
	until("the limit of the key", of("fleet_key"))
	expect(t, url, commands[5], `"user:alice": 500/min burst 1000, since `)
	expect(t, url, commands[6], `"user:alice"`, "1 of at most 1000 keys")
	expect(t, url, commands[7], "no limit of the fleet, was: 500/min burst 1000")
	until("the limit without that of the key", of("settings"))

	// With a file.
	next := strings.Replace(content, ofFile, "300/s burst 600", 1)
	replace(next)
	checked := append([]string{"check"}, file)
	if commands[8][0] != "check" {
		t.Errorf("the last command is %q", commands[8])
	}
	expect(t, url, checked, "300 per 1s, burst 600")
	decides("300/s burst 600", hybrid.LimitFromSettings)
	sum := sha256.Sum256([]byte(next))
	until("the line of the file in force", func(p *program) bool {
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, inForce) && strings.Contains(line, "="+hex.EncodeToString(sum[:4])) {
				return true
			}
		}
		return false
	})
	replace(strings.Replace(next, `"api"`, `"apo"`, 1))
	until("the line about names", func(p *program) bool { return strings.Contains(p.log.String(), strange) })
	replace(next[:len(next)/2])
	if status, _, errOut := cli(t, url, checked...); status != 1 || !strings.Contains(errOut, "limits.json:") {
		t.Errorf("check of half a file: status %d, %s", status, errOut)
	}
	until("the line about the file", func(p *program) bool { return strings.Contains(p.log.String(), unusable) })
	replace(next)
	decides("300/s burst 600", hybrid.LimitFromSettings)
	replace("{}")
	decides("10/h", hybrid.LimitFromConfig)
}
