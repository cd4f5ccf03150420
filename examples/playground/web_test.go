package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// serve is a playground on a port of its own.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	redis.SetLogger(quiet{})
	s := newStore(nil)
	p, err := newPlayground(s)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.handler())
	t.Cleanup(func() {
		p.feed.close()
		server.Close()
		p.close()
		s.close()
	})
	return server
}

func do(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// Whatever a page sends that is wrong is refused, with all that is wrong named,
// and changes nothing.
func TestBadOrdersAreRefused(t *testing.T) {
	server := serve(t)
	_, before := do(t, "GET", server.URL+"/api/fleet/stats", "")
	if !strings.Contains(before, "sources") {
		t.Fatalf("no stats: %s", before)
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               []string
	}{
		{"PUT", "/api/fleet/settings", `{"processes":99,"rate":0,"burst":-1,"load":-2,"k":-1,"t_ms":1,"overshoot":2,"mode":"fast"}`, 400, []string{
			"processes (99) must be 1 to 12", "rate (0)", "burst (-1)", "load (-2)", "k (-1)", "t_ms (1)", "overshoot (2)", `mode ("fast")`,
		}},
		{"PUT", "/api/fleet/settings", `{"processes":"four"}`, 400, []string{"cannot be read"}},
		{"PUT", "/api/fleet/settings", `{"unheard_of":1}`, 400, []string{"unheard_of"}},
		{"PUT", "/api/fleet/settings", `{"load":1e999}`, 400, []string{"cannot be read"}},
		{"PUT", "/api/fleet/settings", strings.Repeat(" ", 10000) + "{}", 400, []string{"too large"}},
		{"POST", "/api/fleet/redis", `{"action":"explode"}`, 400, []string{`action ("explode") must be kill, hang, slow, wipe or restore`}},
		{"POST", "/api/fleet/redis", `{"action":"slow","ms":100000}`, 400, []string{"ms (100000) must be 1 to 1000"}},
		{"POST", "/api/fleet/redis", `{"action":"kill","ms":3}`, 400, []string{"ms (3) is for slow only"}},
		{"POST", "/api/fleet/processes/9", `{"action":"crash"}`, 400, []string{"process (9) must be 1 to 4"}},
		{"POST", "/api/fleet/processes/x", `{"action":"crash"}`, 404, []string{`"x" is no process`}},
		{"POST", "/api/fleet/processes/1", `{"action":"dance"}`, 400, []string{`action ("dance")`}},
		{"POST", "/api/fleet/processes/1", `{"action":"resume"}`, 409, []string{"process 1 is running: it cannot resume"}},
		{"POST", "/api/cards/token-bucket/send", `{"n":101}`, 400, []string{"n (101) must be 1 to 100"}},
		{"POST", "/api/cards/nothing/send", `{"n":1}`, 404, []string{`no card "nothing"`}},
		{"PUT", "/api/cards/sliding-log/limit", `{"rate":1000,"period_ms":9223372036854775807,"burst":0}`, 400, []string{"rate (1000)", "period_ms ("}},
		{"PUT", "/api/cards/leaky-queue/limit", `{"rate":1,"period_ms":1000,"burst":0}`, 400, []string{"burst (0)"}},
	} {
		status, text := do(t, tc.method, server.URL+tc.path, tc.body)
		if status != tc.status {
			t.Errorf("%s %s: status %d, want %d: %s", tc.path, tc.body, status, tc.status, text)
		}
		var reply struct{ Error string }
		if err := json.Unmarshal([]byte(text), &reply); err != nil {
			t.Errorf("%s %s: %s", tc.path, tc.body, text)
		}
		for _, want := range tc.want {
			if !strings.Contains(reply.Error, want) {
				t.Errorf("%s %s: %q lacks %q", tc.path, tc.body, reply.Error, want)
			}
		}
	}
	var h hello
	hear(t, server.URL, "hello", &h)
	if h.Fleet.State.Settings != initial || h.Fleet.State.Redis.State != redisUp || h.Cards[0].Rate != 2 {
		t.Errorf("something has changed: %+v", h.Fleet.State)
	}
}

// Another site's page may not break anything, and ours may load nothing else.
func TestOtherSitesAreRefused(t *testing.T) {
	server := serve(t)
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/api/reset", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", res.StatusCode)
	}
	res, err = http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if policy := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'self'") {
		t.Errorf("the page's policy: %q", policy)
	}
}

// hear opens a page's connection and returns the first message of a name.
func hear(t *testing.T, url, name string, v any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url+"/feed", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if lines.Text() != "event: "+name || !lines.Scan() {
			continue
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), v); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no %q: %v", name, lines.Err())
}

// What one page does, the others see, and so does one that is opened later.
func TestPagesShareOneState(t *testing.T) {
	server := serve(t)
	type heard struct{ s cardState }
	ready, got := make(chan struct{}), make(chan heard, 1)
	go func() {
		defer close(got)
		r, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/feed", nil)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			switch lines.Text() {
			case "event: hello":
				close(ready)
			case "event: card":
				lines.Scan()
				var h heard
				if json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &h.s) == nil {
					got <- h
				}
				return
			}
		}
	}()
	<-ready
	if status, text := do(t, "POST", server.URL+"/api/cards/sliding-log/send", `{"n":3}`); status != 200 || strings.Count(text, `"status":200`) != 3 {
		t.Fatalf("%d %s", status, text)
	}
	if h := <-got; h.s.ID != "sliding-log" || h.s.Sent != 3 {
		t.Errorf("the other page heard %+v", h.s)
	}
	var h hello
	hear(t, server.URL, "hello", &h)
	if s := h.Cards[5]; s.Sent != 3 || len(s.Log) != 3 || s.Remaining != 7 {
		t.Errorf("a new page has %+v", s)
	}
}

// /try answers as a service does.
func TestTry(t *testing.T) {
	server := serve(t)
	for i := range 11 {
		res, err := http.Get(server.URL + "/try/fixed-window")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if (res.StatusCode == 200) != (i < 10) && res.StatusCode != 200 { // a window may end in between
			t.Errorf("request %d: %d", i+1, res.StatusCode)
		}
		if res.Header.Get("RateLimit-Policy") != `"fixed-window";q=10;w=5` {
			t.Errorf("headers %v", res.Header)
		}
	}
}

// Ctrl-C, with a page open: start returns, and no goroutine of it is left.
func TestNothingIsLeft(t *testing.T) {
	for name, args := range map[string][]string{
		"embedded": {"-addr", "127.0.0.1:0"},
		"redis":    {"-addr", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "redis" {
				args = append(args, "-redis", "redis://"+redistest.New(t).Addr()+"/3")
			}
			http.DefaultClient.CloseIdleConnections()
			before := ours()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, to := io.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- start(ctx, args, to, io.Discard) }()
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			url := regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
			var h hello
			hear(t, url, "hello", &h)
			if h.Fleet.State.Redis.Embedded != (name == "embedded") {
				t.Errorf("Redis is %+v", h.Fleet.State.Redis)
			}
			var s sample
			hear(t, url, "sample", &s)
			open, err := http.Get(url + "/feed")
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			open.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			redistest.Eventually(t, 10*time.Second, "all goroutines have ended", func() bool { return ours() <= before })
		})
	}
}

// ours is how many goroutines are in code of this module, or of what it starts
// for itself, but for tests.
func ours() (n int) {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range bytes.Split(buf, []byte("\n\n")) {
		text := string(g)
		if strings.Contains(text, "testing.tRunner") && !strings.Contains(text, "created by") || strings.Contains(text, "_test.go") {
			continue
		}
		for _, part := range []string{"hybridlimit/", "go-redis", "miniredis", "net/http.(*Server)"} {
			if strings.Contains(text, part) {
				n++
				break
			}
		}
	}
	return n
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-redis", "nonsense://"}, {"-addr"}, {"extra"}, {"-nope"}} {
		if err := start(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	err := start(t.Context(), []string{"-addr", "127.0.0.1:0", "-redis", "redis://127.0.0.1:1"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no Redis at 127.0.0.1:1") {
		t.Errorf("without a Redis: %v", err)
	}
}
