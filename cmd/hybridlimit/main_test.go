package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/testenv"
	"github.com/hybridlimit/hybridlimit/lua"
)

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// TestMain silences go-redis, which reports every failed dial on stderr, unless
// it is to be the program itself.
func TestMain(m *testing.M) {
	if os.Getenv("HYBRIDLIMIT_TEST_MAIN") != "" {
		main()
	}
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}

// cli runs the program against a server.
func cli(t *testing.T, url string, args ...string) (status int, out, errOut string) {
	t.Helper()
	return cliWith(t, url, "", args...)
}

// cliWith is cli with a standard input.
func cliWith(t *testing.T, url, in string, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	status = run(t.Context(), args, url, strings.NewReader(in), &o, &e)
	return status, o.String(), e.String()
}

// expect runs it and wants success and texts, in this order.
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

// finds runs it and wants the exit status of what Redis has nothing of, a text in
// the error, and texts in the output, in this order.
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

// redisKey is the key of a state, by the tool's defaults.
func redisKey(name, key string) string {
	n := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	return n.State(n.Tag(key), name, key)
}

func urlOf(srv *redistest.Server) string { return "redis://" + srv.Addr() }

// used takes units of a key by a limiter of the fleet.
func used(t *testing.T, rdb redis.UniversalClient, limit hybridlimit.Limit, cfg global.Config, key string, units int64) {
	t.Helper()
	cfg.Timeout = 10 * time.Second
	l, err := global.New(rdb, limit, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Charge(t.Context(), key, units); err != nil {
		t.Fatal(err)
	}
}

var hourly = hybridlimit.TokenBucket(1, time.Hour, 10)

func TestInspect(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	api := global.Config{Name: "api"}
	finds(t, url, []string{"inspect", "-name", "api", "alice"}, `no limiter "api" is known to this Redis: no key, no process and no switch, by -prefix hl and -tags 16`,
		`api "alice": no state under this key: it was not used, or is full again`, redisKey("api", "alice"), "fleet       0 processes", "switch      normal, never set")
	used(t, rdb, hourly, api, "alice", 3)
	before := dump(t, rdb)
	expect(t, url, []string{"inspect", "-name", "api", "alice"},
		`api "alice": when it was last written the bucket had 7.0 units left, at 20`, "-limit says what is left by now", `in Redis    "hl:v2:{`, `}:api:alice"`, "debited     3 units since 20", "leased      0 units", "forgotten   in 3h0m")
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "alice"}, `api "alice": allowed because the bucket has 7 of 10 units left`)
	out := expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "-json", "alice"})
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.State == nil || r.State.Left != 7 || r.Key != "alice" || r.Switch != "normal" || r.Digest != (lua.Names{}).Digest("api", "alice") {
		t.Errorf("%+v, %v", r, err)
	}
	if after := dump(t, rdb); after != before {
		t.Errorf("inspect changed\n%s to\n%s", before, after)
	}
	used(t, rdb, hourly, api, "alice", 9)
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "alice"}, "denied for 2h59m", "because the bucket is 2 units beyond the limit")
	expect(t, url, []string{"inspect", "-name", "api", "alice"}, "bucket was 2.0 units in debt")
	days := testenv.OpenWindow(time.Now(), 1, 240*time.Hour)
	for name, c := range map[string]struct {
		limit hybridlimit.Limit
		said  string
	}{
		"queue":   {hybridlimit.LeakyQueue(1, time.Hour, 10), "queue had 3.0 units standing in it"},
		"fixed":   {hybridlimit.FixedWindow(10, days), "fixed window had 3 units counted, and 0 in the window before"},
		"sliding": {hybridlimit.SlidingWindow(10, days), "sliding window had 3 units counted"},
		"log":     {hybridlimit.SlidingLog(10, time.Hour), "Redis has a log of the key"},
	} {
		used(t, rdb, c.limit, global.Config{Name: name}, "k", 3)
		expect(t, url, []string{"inspect", "-name", name, "k"}, c.said)
	}
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	if err := rdb.Set(t.Context(), names.State(names.Tag("odd"), "api", "odd"), "9z", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, url, []string{"inspect", "-name", "api", "odd"}, "Redis has something of the key that this version cannot read")
	// A key is data, wherever it is printed.
	used(t, rdb, hourly, api, "{a}:\x1b[2J\n", 1)
	out = expect(t, url, []string{"inspect", "-name", "api", "{a}:\x1b[2J\n"}, `"{a}:\x1b[2J\n"`)
	if strings.Contains(out, "\x1b") {
		t.Error("a key was printed as it is")
	}
}

// dump is all keys and values, without TTLs.
func dump(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	var b strings.Builder
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		fmt.Fprintln(&b, k, rdb.Dump(t.Context(), k).Val())
	}
	return b.String()
}

// What identifies the deployment decides which key is meant: the prefix, the
// tags, the subject, the secret.
func TestIdentity(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	secret := strings.Repeat("s", 40)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tenant := func(string) string { return "tenant" }
	used(t, rdb, hourly, global.Config{Name: "api", Prefix: "shop", Tags: 7, HashKeys: hybridlimit.Secret(secret), Subject: tenant}, "alice@example.com", 4)
	shop := []string{"-name", "api", "-prefix", "shop", "-tags", "7", "-hash-secret-file", file, "-subject", "tenant"}
	out := expect(t, url, append(append([]string{"inspect"}, shop...), "alice@example.com"), "bucket had 6.0 units left")
	if strings.Contains(out, secret) || !regexp.MustCompile(`in Redis +"shop:v2:\{\d\}:api:[\w-]{22}"`).MatchString(out) {
		t.Errorf("%s", out)
	}
	for _, other := range [][]string{{"-name", "api"}, shop[:2], shop[:4], shop[:6], shop[:8]} {
		if len(other) == 8 && (lua.Names{Tags: 7, HashKeys: hybridlimit.Secret(secret)}).Tag("tenant") == (lua.Names{Tags: 7, HashKeys: hybridlimit.Secret(secret)}).Tag("alice@example.com") {
			continue // in one slot by chance
		}
		finds(t, url, append(append([]string{"inspect"}, other...), "alice@example.com"), "hybridlimit: no ", "no state under this key")
	}
	out = expect(t, url, append([]string{"top"}, shop[:8]...), "6.0 left", "1 keys of api, all there are")
	if strings.Contains(out, "alice") {
		t.Errorf("top knows a hashed key:\n%s", out)
	}
	expect(t, url, append(append([]string{"reset", "-limit", "1/h burst 10"}, shop...), "alice@example.com"), `api "alice@example.com": reset; before, it was allowed because the bucket has 6 of 10 units left`)
	expect(t, url, append(append([]string{"inspect", "-limit", "1/h burst 10"}, shop...), "alice@example.com"), "10 of 10 units left")
}

func TestReset(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	used(t, rdb, hourly, global.Config{Name: "api"}, "alice", 12)
	expect(t, url, []string{"reset", "-name", "api", "-limit", "1/h burst 10", "alice"}, `reset; before, it was denied for`, "Processes may spend what they have leased")
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "alice"}, "allowed because the bucket has 10 of 10 units left")
	used(t, rdb, hybridlimit.SlidingLog(10, time.Hour), global.Config{Name: "log"}, "k", 10)
	expect(t, url, []string{"reset", "-name", "log", "-limit", "10/h sliding log", "k"}, "reset; before, it was denied")
	// A limit of another algorithm would leave a state that the fleet cannot read.
	used(t, rdb, hybridlimit.SlidingLog(10, time.Hour), global.Config{Name: "log"}, "k", 10)
	before := dump(t, rdb)
	for _, c := range []struct{ name, limit, key, want string }{
		{"api", "10/h sliding log", "alice", "is a log: Redis has a bucket of the key"},
		{"log", "10/h", "k", "is a bucket: Redis has a log of the key"},
		{"api", "10/h fixed window", "alice", "is a fixed window: Redis has a bucket of the key"},
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
	expect(t, url, []string{"switch", "-name", "api", "deny_all"}, "api: deny_all, was normal\n", "No process shares a limit of this name now, by -prefix hl and -tags 16.")
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
	expect(t, url, []string{"switch", "-name", "api", "shadow"}, "api: shadow, was deny_all\n", "1 processes hear of it within a second")
	hears(hybrid.SwitchShadow)
	expect(t, url, []string{"switch", "-name", "api"}, "api: shadow, since 20")
	finds(t, url, []string{"inspect", "-name", "api", "k"}, "hybridlimit: no state under this key\n", "no state under this key", redisKey("api", "k"), "fleet       1 processes", "switch      shadow, since 20")
	finds(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "k"}, "hybridlimit: no state under this key\n", "no state under this key")
	expect(t, url, []string{"switch", "-name", "api", "normal"}, "api: normal, was shadow\n")
	hears(hybrid.SwitchNormal)
}

// rows are the first words of the lines of top: the keys.
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
	out := expect(t, url, []string{"top", "-name", "api", "-by", "emptiest"}, "KEY", "-10.0 left", "3.0 left", "6.0 left", "9.0 left", "4 keys of api, all there are")
	if got := strings.Join(rows(out), " "); got != "d c b a" {
		t.Errorf("emptiest: %s\n%s", got, out)
	}
	out = expect(t, url, []string{"top", "-name", "api", "-n", "2"}, "110", "4 keys of api")
	if got := strings.Join(rows(out), " "); got != "d c" {
		t.Errorf("busiest: %s\n%s", got, out)
	}
	expect(t, url, []string{"top", "-name", "log"}, `"k"`, "entries", "1 keys of log")
	expect(t, url, []string{"top", "-name", "nobody"}, "0 keys of nobody, all there are")
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	if err := rdb.Set(t.Context(), names.State(0, "api", "odd"), "9z", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, url, []string{"top", "-name", "api"}, "4 keys of api", "1 more hold something that this version cannot read.")
}

// A scan keeps to its rate and ends in time, and says that it has not seen all.
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
	expect(t, url, []string{"top", "-name", "api", "-rate", "1000", "-for", "500ms"}, "keys of api, not all: -for 500ms was over at -rate 1000")
	// 100 keys of Redis a page, ten pages a second: five and the first.
	if n := redistest.Calls(t, rdb)["scan"] - before; n > 6 {
		t.Errorf("%d pages in half a second", n)
	}
	if took := time.Since(began); took < 300*time.Millisecond && !testing.Short() {
		t.Errorf("ended after %v: it kept to no rate", took)
	}
	out := expect(t, url, []string{"top", "-name", "api", "-rate", "1000000"}, "1 keys of api, all there are")
	if len(rows(out)) != 1 {
		t.Errorf("%s", out)
	}
}

// In a cluster all masters are looked at, and a key is found in its slot,
// whatever braces it has.
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
	expect(t, url, []string{"reset", "-cluster", "-name", "api", "-limit", "1/h burst 10", "{user07}"}, "reset; before")
	expect(t, url, []string{"switch", "-cluster", "-name", "api", "shadow"}, "api: shadow, was normal")
	out := expect(t, url, []string{"top", "-cluster", "-name", "api", "-n", "100", "-rate", "100000"}, "30 keys of api, all there are")
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

func TestBadInput(t *testing.T) {
	t.Parallel()
	empty, short := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "short")
	for file, text := range map[string]string{empty: "\n", short: "tooshort\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const url = "redis://127.0.0.1:1"
	for _, c := range []struct {
		args  []string
		wants []string
	}{
		{nil, []string{"usage: hybridlimit COMMAND", "inspect", "top"}},
		{[]string{"flush"}, []string{`"flush" is no command: there are list, inspect, reset, switch and top`}},
		{[]string{"inspect"}, []string{`-name ("") is required`, "must be one key"}},
		{[]string{"inspect", "-name", "a:b", "-prefix", "{x}", "-tags", "0", "-timeout", "-1s", "a", "b"}, []string{`-name ("a:b")`, `-prefix ("{x}")`, "-tags (0) must be 1 to 16384", "-timeout (-1s) must be positive", "must be one key"}},
		{[]string{"inspect", "-name", "api", "-limit", "fast", "k"}, []string{"fast"}},
		{[]string{"inspect", "-name", "api", "-redis", "http://user:geheim@host", "k"}, []string{"-redis", "must be redis://"}},
		{[]string{"inspect", "-cluster", "-name", "api", "-redis", "tcp://user:geheim@host", "k"}, []string{"-redis", "must be redis://"}},
		{[]string{"inspect", "-name", "api", "-hash-secret-file", "/no/such/file", "k"}, []string{"-hash-secret-file", "cannot be read"}},
		{[]string{"inspect", "-name", "api", "-hash-secret-file", empty, "k"}, []string{"-hash-secret-file", "is empty"}},
		{[]string{"inspect", "-name", "api", "-hash-secret-file", short, "k"}, []string{"-hash-secret-file ([secret]) must be 32 to 1024 bytes, not 8"}},
		{[]string{"inspect", "-name", "api", "-api-key", "geheim"}, []string{`-api-key ("[secret]") must be -, and the API key in standard input`}},
		{[]string{"inspect", "-name", "api", "-api-key", "-"}, []string{`-api-key ("[secret]") must be 1 to 65536 bytes in standard input`}},
		{[]string{"inspect", "-name", "api", "-ip", "203.0.113.7", "k"}, []string{"must be one key, or one of -ip, -api-key and -digest"}},
		{[]string{"inspect", "-name", "api", "-ip", "203.0.113.7", "-digest", "short"}, []string{"must be one key, or one of", `-digest ("short") must be the 22 letters`}},
		{[]string{"inspect", "-name", "api", "-ip", "203.0.113.7:80", "-ipv4-bits", "33"}, []string{`-ip ("203.0.113.7:80") must be an address`, "-ipv4-bits, -ipv6-bits"}},
		{[]string{"inspect", "-name", "api", "-api-key", "-", "-header", "", "-api-key-secret-file", short}, []string{`-header ("") must not be empty`, "-api-key-secret-file ([secret]) must be 32 to 1024 bytes"}},
		{[]string{"inspect", "-name", "api", ""}, []string{"key"}},
		{[]string{"list", "-n", "0", "-for", "0s", "-rate", "0", "-limit", "1/s", "x"}, []string{"must be none", "-n (0)", "-for (0s)", "-rate (0)", "needs -name"}},
		{[]string{"list", "-name", "a:b"}, []string{`-name ("a:b")`}},
		{[]string{"inspect", "-nme", "api"}, []string{"-nme"}},
		{[]string{"inspect", "-name", "api", "redis://:geheim@host", "alice"}, []string{"arguments ([[url] alice]) must be one key"}},
		{[]string{"redis://:geheim@host"}, []string{`"[url]" is no command`}},
		{[]string{"redis://:geh\"eim@host"}, []string{`"[url]" is no command`}},
		{[]string{"switch", "-name", "api", "redis://:geheim@host"}, []string{`switch ("[url]") must be "normal"`}},
		{[]string{"top", "-name", "redis://:geheim@host"}, []string{`-name ("[url]") is required`}},
		{[]string{"top", "-n=redis://:geheim@host"}, []string{`invalid value "[url]" for flag -n`}},
		{[]string{"inspect", "-name", "api", "-limit", "redis://:geheim@host", "k"}, []string{"[url]"}},
		{[]string{"reset", "-name", "api", "k"}, []string{"-limit", "is required"}},
		{[]string{"reset", "-name", "api", "-limit", "unlimited", "k"}, []string{`-limit ("unlimited") counts nothing`}},
		{[]string{"switch", "-name", "api", "off"}, []string{`switch ("off") must be "normal"`}},
		{[]string{"switch", "-name", "api", "shadow", "now"}, []string{"must be one switch"}},
		{[]string{"top", "-name", "api", "-by", "size", "-n", "0", "-for", "0s", "-rate", "0", "x"}, []string{"must be none", `-by ("size") must be busiest or emptiest`, "-n (0)", "-for (0s)", "-rate (0)"}},
	} {
		status, out, errOut := cli(t, url, c.args...)
		if status != 2 || out != "" {
			t.Errorf("%q: status %d, %q", c.args, status, out)
		}
		for _, want := range c.wants {
			if !strings.Contains(errOut, want) {
				t.Errorf("%q: no %q in %s", c.args, want, errOut)
			}
		}
		if strings.Contains(errOut, "geh") || strings.Contains(errOut, "tooshort") {
			t.Errorf("%q: a secret in %s", c.args, errOut)
		}
	}
	for _, args := range [][]string{{"help"}, {"top", "-h"}} {
		status, _, errOut := cli(t, "redis://:geheim@host:1", args...)
		if status != 0 || !strings.Contains(errOut, "usage: hybridlimit") || strings.Contains(errOut, "geheim") {
			t.Errorf("%q: %d, %s", args, status, errOut)
		}
	}
}

// Without a Redis every command fails, soon, and says so.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"inspect", "-name", "api", "k"},
		{"inspect", "-name", "api", "-limit", "1/s", "k"},
		{"reset", "-name", "api", "-limit", "1/s", "k"},
		{"switch", "-name", "api"},
		{"switch", "-name", "api", "shadow"},
		{"top", "-name", "api"},
		{"list"},
		{"inspect", "-name", "api", "-ip", "203.0.113.7"},
		{"inspect", "-name", "api", "-digest", "y1eRbAQ7NoCgToOgndaqrA"},
	} {
		args = append([]string{args[0], "-timeout", "200ms"}, args[1:]...)
		status, out, errOut := cli(t, "redis://127.0.0.1:1", args...)
		if status != 1 || out != "" || !strings.Contains(errOut, "connection refused") || strings.Contains(errOut, "cluster") {
			t.Errorf("%q: %d, %s, %s", args, status, out, errOut)
		}
		args = append([]string{args[0], "-cluster"}, args[1:]...)
		if status, out, errOut := cli(t, "redis://127.0.0.1:1", args...); status != 1 || out != "" || !strings.Contains(errOut, "connection refused") {
			t.Errorf("%q: %d, %s, %s", args, status, out, errOut)
		}
	}
}

// The rights that SECURITY.md gives to the library, and those that
// docs/operations.md adds, are enough for every command.
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
	expect(t, url, []string{"switch", "-name", "api", "shadow"}, "api: shadow, was normal")
	expect(t, url, []string{"switch", "-name", "api"}, "api: shadow")
	expect(t, url, []string{"top", "-name", "api"}, "1 keys of api")
	expect(t, url, []string{"list"}, "api: 0 processes, switch shadow", `"alice"`)
	expect(t, url, []string{"inspect", "-name", "api", "-digest", (lua.Names{}).Digest("api", "alice")}, `api "alice": when it was last written`)
	finds(t, url, []string{"inspect", "-name", "none", "alice"}, "no limiter \"none\" is known")
	finds(t, url, []string{"switch", "-name", "none"}, "no limiter \"none\" is known")
	// And without them it fails rather than shows less.
	redistest.Do(t, rdb, "ACL", "SETUSER", "limiter", "-scan", "-get")
	if status, _, errOut := cli(t, url, "top", "-name", "api"); status != 1 || !strings.Contains(errOut, "NOPERM") {
		t.Errorf("without +scan: %d, %s", status, errOut)
	}
	if status, _, errOut := cli(t, url, "list"); status != 1 || !strings.Contains(errOut, "NOPERM") {
		t.Errorf("list without +scan: %d, %s", status, errOut)
	}
	finds(t, url, []string{"switch", "-name", "none"}, "no process and no switch of a limiter \"none\", by -prefix hl and -tags 16; whether it has keys is not known: NOPERM")
}
