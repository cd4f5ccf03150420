package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/lua"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	api := global.Config{Name: "api"}
	finds(t, url, []string{"inspect", "-name", "api", "alice"}, `no limiter "api" is known to this Redis: no key, no process and no switch, with -prefix hl and -tags 16`,
		`api "alice": no state under this key: it was never used, it has its full limit again`, redisKey("api", "alice"), "fleet       0 processes", "switch      normal, never set")
	used(t, rdb, hourly, api, "alice", 3)
	before := dump(t, rdb)
	expect(t, url, []string{"inspect", "-name", "api", "alice"},
		`api "alice": when last written, the bucket had 7.0 units left, at 20`, "add -limit to see the units left now", `in Redis    "hl:v2:{`, `}:api:alice"`, "debited     3 units since 20", "leased      0 units", "expires     in 3h0m")
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "alice"}, `api "alice": allowed because the bucket has 7 of 10 units left`)
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "-floor", "0.2", "alice"}, "class       leaves 2 units to others, so it has 5 left")
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
		"queue":   {hybridlimit.LeakyQueue(1, time.Hour, 10), "queue had 3.0 units in it"},
		"fixed":   {hybridlimit.FixedWindow(10, days), "fixed window had 3 units, and the window before had 0"},
		"sliding": {hybridlimit.SlidingWindow(10, days), "sliding window had 3 units"},
		"log":     {hybridlimit.SlidingLog(10, time.Hour), "Redis has a sliding log for this key"},
	} {
		used(t, rdb, c.limit, global.Config{Name: name}, "k", 3)
		expect(t, url, []string{"inspect", "-name", name, "k"}, c.said)
	}
	names := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	if err := rdb.Set(t.Context(), names.State(names.Tag("odd"), "api", "odd"), "9z", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, url, []string{"inspect", "-name", "api", "odd"}, "Redis has a state under this key that this version cannot read")
	// A key is quoted wherever it is printed.
	used(t, rdb, hourly, api, "{a}:\x1b[2J\n", 1)
	out = expect(t, url, []string{"inspect", "-name", "api", "{a}:\x1b[2J\n"}, `"{a}:\x1b[2J\n"`)
	if strings.Contains(out, "\x1b") {
		t.Error("a key was printed as it is")
	}
}

// The prefix, the tags, the text of the tag and the secret identify a key.
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
	used(t, rdb, hourly, global.Config{Name: "api", Prefix: "shop", Tags: 7, HashKeys: hybridlimit.Secret(secret), TagBy: tenant}, "alice@example.com", 4)
	shop := []string{"-name", "api", "-prefix", "shop", "-tags", "7", "-hash-secret-file", file, "-tag-by", "tenant"}
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
	out = expect(t, url, append([]string{"top"}, shop[:8]...), "6.0 left", "1 keys of api, complete")
	if strings.Contains(out, "alice") {
		t.Errorf("top knows a hashed key:\n%s", out)
	}
	expect(t, url, append(append([]string{"reset", "-limit", "1/h burst 10"}, shop...), "alice@example.com"), `api "alice@example.com": reset to 1/h burst 10; before, it was allowed because the bucket has 6 of 10 units left`)
	expect(t, url, append(append([]string{"inspect", "-limit", "1/h burst 10"}, shop...), "alice@example.com"), "10 of 10 units left")
}

// TestInspectOfClasses checks the line about the fleet of a limiter with classes.
func TestInspectOfClasses(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	l, err := hybrid.New(srv.Client(t), hourly, hybrid.Config{
		Name: "api", Classes: []hybrid.Class{{Name: "rest", Floor: 0.2}}, Hub: hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	redistest.Eventually(t, 20*time.Second, "the process is counted", func() bool { return l.Stats().Fleet > 0 })
	if res, err := l.Allow(t.Context(), "alice"); err != nil || !res.Allowed {
		t.Fatal(res, err)
	}
	// On a busy machine the process has decided alone, and tells Redis later.
	redistest.Eventually(t, 20*time.Second, "Redis has the key", func() bool {
		return len(srv.Client(t).Keys(t.Context(), "*alice*").Val()) > 0
	})
	expect(t, urlOf(srv), []string{"inspect", "-name", "api", "alice"}, "fleet       1 processes with 2 accounts, one for each class")
}
