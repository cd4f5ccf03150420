package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// process starts a process with a limiter "api", and waits for its heartbeat.
func process(t *testing.T, srv *redistest.Server, cfg hybrid.HubConfig, limit hybridlimit.Limit) *hybrid.Limiter {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	h, err := hybrid.NewHub(srv.Client(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	l, err := h.Limiter(limit, hybrid.Config{Name: "api", MaxWait: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// use takes all units of a key.
func use(t *testing.T, l *hybrid.Limiter, key string) {
	t.Helper()
	for range 1000 {
		res, err := l.Allow(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if !res.Allowed {
			return
		}
	}
	t.Fatalf("%q is not used up", key)
}

// TestAUserInAnIncident follows a user who is denied behind httplimit.User: an operator finds the key by the name, sees the limit
// that the processes say, raises it for the fleet, gives the key its units, and puts all of it back.
func TestAUserInAnIncident(t *testing.T) {
	t.Parallel()
	secret := hybridlimit.Secret(strings.Repeat("h", 40))
	for name, c := range map[string]struct {
		cfg  hybrid.HubConfig
		args []string
	}{
		"plain":    {hybrid.HubConfig{}, nil},
		"one tag":  {hybrid.HubConfig{Tags: 1}, nil},
		"odd tags": {hybrid.HubConfig{Tags: 37}, nil},
		"hashed":   {hybrid.HubConfig{HashKeys: secret}, []string{"-hash-secret-file", secretFile(t, secret)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.New(t)
			url := urlOf(srv)
			ls := []*hybrid.Limiter{process(t, srv, c.cfg, hourly), process(t, srv, c.cfg, hourly)}
			mw, err := httplimit.New(httplimit.Config{}, httplimit.Limit{Limiter: ls[0], Key: httplimit.User("", func(r *http.Request) string { return r.Header.Get("User") })})
			if err != nil {
				t.Fatal(err)
			}
			get := func() int {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("User", "bob")
				mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
				return w.Code
			}
			use(t, ls[0], clientkey.User("", "bob"))
			if code := get(); code != http.StatusTooManyRequests {
				t.Fatalf("status %d", code)
			}
			cmd := func(args ...string) []string {
				return append(append([]string{args[0], "-name", "api"}, c.args...), args[1:]...)
			}
			finds(t, url, cmd("inspect", "bob"), "no state under this key")
			finds(t, url, cmd("reset", "bob"), "nothing was reset: Redis has no state of the key \"bob\"")
			expect(t, url, cmd("inspect", "-user", "bob"), `api "user:bob": denied for`, "limit       1/h burst 10, of the limiter; the key may have its own", "2 processes")
			expect(t, url, cmd("inspect", "user:bob"), `api "user:bob": denied for`)
			expect(t, url, cmd("inspect", "-for-key", "user:bob"), `api "user:bob": denied for`)

			finds(t, url, cmd("limit", "-user", "bob"), "the fleet has no limit for the key \"user:bob\"")
			finds(t, url, cmd("limit", "-user", "bob", "-clear"), "nothing was changed")
			finds(t, url, cmd("limit", "-list"), "the fleet has no limit for any key")
			expect(t, url, cmd("limit", "-user", "bob", "5/h burst 50"), `api "user:bob": 5/h burst 50, was: no limit of the fleet`, "Used units stay used.", "2 processes receive it")
			for _, l := range ls {
				redistest.Eventually(t, 20*time.Second, "the process hears of the limit", func() bool {
					i, err := l.Inspect(t.Context(), "user:bob")
					return err == nil && i.LimitFrom == "fleet_key" && i.Limit.Burst == 50
				})
			}
			stored := "user:bob"
			if c.cfg.HashKeys != "" {
				stored = lua.Names{HashKeys: secret}.Stored("api", stored)
			}
			expect(t, url, cmd("limit", "-list"), stored, "5/h burst 50, since 20", "1 of at most 1000 keys of api")
			expect(t, url, cmd("inspect", "-user", "bob"), "denied", "5/h burst 50, of the fleet for this key")
			expect(t, url, cmd("reset", "-user", "bob"), `api "user:bob": reset to 5/h burst 50 (the limit of the fleet for this key); before, it was denied`)
			redistest.Eventually(t, 20*time.Second, "bob is served", func() bool { return get() == http.StatusOK })
			digest := lua.Names{HashKeys: c.cfg.HashKeys}.Digest("api", "user:bob") // of a log line: the same key
			expect(t, url, cmd("limit", "-digest", digest), "5/h burst 50, since 20")
			expect(t, url, cmd("limit", "-digest", digest, "6/h burst 60"), ": 6/h burst 60, was: 5/h burst 50")
			expect(t, url, cmd("limit", "-list"), stored, "6/h burst 60", "1 of at most 1000 keys of api")
			expect(t, url, cmd("limit", "-user", "bob", "-clear"), `api "user:bob": no limit of the fleet, was: 6/h burst 60`)
			redistest.Eventually(t, 20*time.Second, "the limit is back", func() bool {
				i, err := ls[1].Inspect(t.Context(), "user:bob")
				return err == nil && i.LimitFrom == "config"
			})
		})
	}
}

// TestRefusedLimitsOfKeys checks limits of keys that no process would apply, or for which there is no room: status 3, the field and
// the value, and nothing changes.
func TestRefusedLimitsOfKeys(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	process(t, srv, hybrid.HubConfig{}, hourly)
	full := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}
	text := "1 5\n"
	for i := range hybrid.MaxFleetKeyLimits {
		text += fmt.Sprintf("5 5/h k%d\n", i)
	}
	settings := func() string { // heartbeats change other keys
		return fmt.Sprint(rdb.Get(t.Context(), full.KeyLimits("api")).Val(), rdb.Get(t.Context(), full.FleetLimit("api")).Val(), rdb.Get(t.Context(), full.Changed()).Val(),
			rdb.Exists(t.Context(), full.KeyLimits("apo"), full.FleetLimit("apo"), full.Switch("apo")).Val())
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"limit", "-name", "api", "-user", "bob", "5 per fortnight"}, `limit ("5 per fortnight") is not a limit`},
		{[]string{"limit", "-name", "api", "-for-key", "bob", "--", "-5/s"}, `limit ("-5/s") is not a limit`},
		{[]string{"limit", "-name", "api", "-user", "bob", "5/min sliding window"}, `limit ("5/min sliding window"): nothing was changed: its algorithm is sliding window, but the processes of "api" have token bucket`},
		{[]string{"limit", "-name", "api", "-user", "bob", "5 concurrent"}, `limit ("5 concurrent"): nothing was changed: its algorithm is concurrent`},
		{[]string{"limit", "-name", "api", "5/min sliding window"}, `limit ("5/min sliding window"): nothing was changed`},
		{[]string{"limit", "-name", "apo", "-user", "bob", "5/s"}, `-name ("apo"): no process has a limiter of this name`},
		{[]string{"limit", "-name", "apo", "5/s"}, `-name ("apo"): no process has a limiter of this name`},
		{[]string{"switch", "-name", "apo", "allow_all"}, `-name ("apo"): no process has a limiter of this name`},
		{[]string{"limit", "-name", "api", "-tags", "3", "-user", "bob", "5/s"}, `with -prefix hl and -tags 3`},
		{[]string{"limit", "-name", "api", "-for-key", strings.Repeat("k", 600), "5/s"}, `-for-key ("kkk`},
	} {
		before := settings()
		finds(t, url, c.args, c.want)
		if after := settings(); after != before {
			t.Errorf("%q changed\n%s to\n%s", c.args, before, after)
		}
	}
	rdb.Set(t.Context(), full.KeyLimits("api"), text, time.Hour)
	before := settings()
	finds(t, url, []string{"limit", "-name", "api", "-user", "bob", "5/s"}, `-for-key ("user:bob"): nothing was changed: the limiter "api" has 1000 keys with a limit of the fleet`)
	if after := settings(); after != before {
		t.Error("the 1001st key changed the others")
	}
	expect(t, url, []string{"limit", "-name", "api", "-for-key", "k5", "7/h"}, `api "k5": 7/h, was: 5/h`)
}

// Each answer is also JSON.
func TestJSON(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url := urlOf(srv)
	use(t, process(t, srv, hybrid.HubConfig{}, hourly), "user:bob")
	file := t.TempDir() + "/limits.json"
	if err := os.WriteFile(file, []byte(`{"api": {"limit": "5/s", "keys": {"user:bob": "7/s"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"list"}, `"name":"api","processes":1,"limits":"1/h burst 10","switch":"normal","keys":[{"key":"user:bob"`},
		{[]string{"top"}, `[{"name":"api","limits":"1/h burst 10","keys":1,"complete":true,"top":[{"key":"user:bob"`},
		{[]string{"inspect", "-name", "api", "-user", "bob"}, `"limit":"1/h burst 10","limit_from":"the limiter; the key may have its own","state":{`},
		{[]string{"limit", "-name", "api"}, `{"name":"api"}`},
		{[]string{"limit", "-name", "api", "2/h burst 20"}, `{"name":"api","limit":"2/h burst 20","processes":1}`},
		{[]string{"limit", "-name", "api", "-user", "bob", "3/h burst 30"}, `{"name":"api","key":"user:bob","limit":"3/h burst 30","processes":1}`},
		{[]string{"limit", "-name", "api", "-list"}, `[{"name":"api","key":"user:bob","limit":"3/h burst 30","since":"20`},
		{[]string{"switch", "-name", "api", "shadow"}, `{"name":"api","switch":"shadow","was":"normal","processes":1}`},
		{[]string{"switch", "-name", "api"}, `"switch":"shadow","since":"20`},
		{[]string{"reset", "-name", "api", "-user", "bob"}, `"limit":"3/h burst 30","limit_from":"the fleet for this key","before":{`},
		{[]string{"key", "-user", "bob"}, `{"key":"user:bob"}`},
		{[]string{"check", file}, `"limiters":{"api":{"limit":"5/s","keys":{"user:bob":"7/s"}}}`},
		{[]string{"version"}, `{"version":"`},
		{[]string{"completion", "bash"}, `{"script":"`},
	} {
		args := slices.Insert(slices.Clone(c.args), 1, "-json")
		_, out, errOut := cli(t, url, args...)
		var v any
		if err := json.Unmarshal([]byte(out), &v); err != nil || errOut != "" && c.args[0] != "limit" {
			t.Errorf("%q: %v, %s\n%s", args, err, errOut, out)
			continue
		}
		// Without the spaces between fields, which encoding/json keeps in their order.
		var flat strings.Builder
		for line := range strings.Lines(out) {
			flat.WriteString(strings.TrimSpace(line))
		}
		if got := strings.ReplaceAll(flat.String(), `": `, `":`); !strings.Contains(got, c.want) {
			t.Errorf("%q: no %s in\n%s", args, c.want, got)
		}
	}
}

// key prints the text of a key as the key functions of httplimit make it.
func TestKey(t *testing.T) {
	t.Parallel()
	secret := hybridlimit.Secret(strings.Repeat("s", 40))
	for want, c := range map[string]struct {
		in   string
		args []string
	}{
		clientkey.User("", "alice"):               {"", []string{"-user", "alice"}},
		clientkey.User(secret, "alice"):           {"", []string{"-user", "alice", "-secret-file", secretFile(t, secret)}},
		clientkey.APIKey("", "X-Api-Key", "k 1"):  {" k 1\r\n", []string{"-api-key", "-"}},
		clientkey.APIKey(secret, "X-Token", "k2"): {"k2", []string{"-api-key=-", "-header", "x-token", "-secret-file", secretFile(t, secret)}},
		clientkey.Bearer("", "t1"):                {"t1\n", []string{"-bearer", "-"}},
		"ip:192.0.2.1":                            {"", []string{"-ip", "192.0.2.1"}},
		"ip:2001:db8::/48":                        {"", []string{"-ip", "2001:db8::7", "-ipv6-bits", "48"}},
		"a\x00\"b":                                {"", []string{`"a\x00\"b"`}},
		`"a`:                                      {"", []string{"-for-key", `"a`}},
		"route:GET /users/{id}":                   {"", []string{"route:GET /users/{id}"}},
	} {
		status, out, errOut := cliWith(t, "", c.in, append([]string{"key"}, c.args...)...)
		if status != 0 || out != want+"\n" || errOut != "" {
			t.Errorf("%q: %d, %q, %s; want %q", c.args, status, out, errOut, want)
		}
	}
}

// The completion is a script that bash reads, and that knows each command and its flags.
func TestCompletion(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err) // the scripts of this repository need it too
	}
	script := completionOf("bash")
	for line, want := range map[string]string{
		"": "list top inspect reset switch limit key periods check version completion", "in": "inspect", "switch d": "deny_all", "limit -for-": "-for-key", "list -us": "", "completion z": "zsh",
	} {
		words := strings.Split("hybridlimit "+line, " ")
		run := script + "\nCOMP_WORDS=('" + strings.Join(words, "' '") + "'); COMP_CWORD=" + fmt.Sprint(len(words)-1) + "; _hybridlimit; echo \"${COMPREPLY[*]}\""
		out, err := exec.CommandContext(t.Context(), bash, "-c", run).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	if zsh := completionOf("zsh"); !strings.HasPrefix(zsh, "#compdef hybridlimit\n") || !strings.Contains(zsh, "bashcompinit") {
		t.Errorf("zsh: %s", zsh)
	}
}
