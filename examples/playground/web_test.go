package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// serve starts a playground on its own port.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	s := newStore(nil)
	p, err := newPlayground(s)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.handler("play.example"))
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

// TestBadOrdersAreRefused checks that an invalid order is refused with an error
// that names all mistakes, and that it changes nothing.
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
		{"PATCH", "/api/fleet/settings", `{"processes":99,"rate":0,"burst":-1,"load":-2,"k":-1,"t_ms":1,"overshoot":2,"mode":"fast"}`, 400, []string{
			"processes (99) must be 1 to 12", "rate (0)", "burst (-1)", "load (-2)", "k (-1)", "t_ms (1)", "overshoot (2)", `mode ("fast")`,
		}},
		{"PATCH", "/api/fleet/settings", `{"processes":"four"}`, 400, []string{"cannot be read"}},
		{"PATCH", "/api/fleet/settings", `{"unheard_of":1}`, 400, []string{"unheard_of"}},
		{"PATCH", "/api/fleet/settings", `{"load":1e999}`, 400, []string{"load (1e999) is too large"}},
		{"PATCH", "/api/fleet/settings", `{"rate":2.7}`, 400, []string{"playground: rate (2.7) must be a whole number"}},
		{"PATCH", "/api/fleet/settings", `{"rate":99999999999999999999}`, 400, []string{"rate (99999999999999999999) is too large"}},
		{"PATCH", "/api/fleet/settings", `{"mode":5}`, 400, []string{"cannot be read: mode is of type number"}},
		{"PATCH", "/api/fleet/settings", `{"rate":600}{"rate":700}`, 400, []string{"something follows its first value"}},
		{"PATCH", "/api/fleet/settings", `{"rate":600} nonsense`, 400, []string{"something follows its first value"}},
		{"PATCH", "/api/fleet/settings", ``, 400, []string{"cannot be read"}},
		{"PATCH", "/api/fleet/settings", `[]`, 400, []string{"cannot be read: it is of type array"}},
		{"PATCH", "/api/fleet/settings", strings.Repeat(" ", 10000) + "{}", 400, []string{"too large"}},
		{"POST", "/api/fleet/redis", `{"action":"explode"}`, 400, []string{`action ("explode") must be kill, hang, slow, wipe or restore`}},
		{"POST", "/api/fleet/redis", `{"action":"slow","ms":100000}`, 400, []string{"ms (100000) must be 1 to 1000"}},
		{"POST", "/api/fleet/redis", `{"action":"kill","ms":3}`, 400, []string{"ms (3) is for slow only"}},
		{"POST", "/api/fleet/processes/9", `{"action":"crash"}`, 400, []string{"process (9) must be 1 to 4"}},
		{"POST", "/api/fleet/processes/x", `{"action":"crash"}`, 404, []string{`"x" is not a process`}},
		{"POST", "/api/fleet/processes/1", `{"action":"dance"}`, 400, []string{`action ("dance")`}},
		{"POST", "/api/fleet/processes/1", `{"action":"resume"}`, 409, []string{"process 1 is running: it cannot resume"}},
		{"PATCH", "/api/fleet/settings", `{"permits":0,"call_ms":1,"call_load":9}`, 400, []string{"permits (0) must be 1 to 100", "call_ms (1)", "call_load (9)"}},
		{"POST", "/api/fleet/processes/9/calls", `{"n":1}`, 400, []string{"process (9) must be 1 to 4"}},
		{"POST", "/api/fleet/processes/x/calls", `{"n":1}`, 404, []string{`"x" is not a process`}},
		{"POST", "/api/fleet/processes/1/calls", `{"n":21}`, 400, []string{"n (21) must be 1 to 20"}},
		{"POST", "/api/cards/token-bucket/send", `{"n":101}`, 400, []string{"n (101) must be 1 to 100"}},
		{"POST", "/api/cards/nothing/send", `{"n":1}`, 404, []string{`no card "nothing"`}},
		{"PUT", "/api/cards/sliding-log/limit", `{"rate":1000,"period_ms":9223372036854775807,"burst":0}`, 400, []string{"rate (1000)", "period_ms ("}},
		{"PUT", "/api/cards/sliding-log/limit", `{"rate":10,"period_ms":-500,"burst":0}`, 400, []string{"period_ms (-500) must be 100 ms to a minute"}},
		{"PUT", "/api/cards/sliding-log/limit", `{"rate":10,"period_ms":1000,"burst":5}`, 400, []string{"burst (5) must be 0"}},
		{"PUT", "/api/cards/token-bucket/limit", `{"rate":2.7,"period_ms":1000,"burst":5}`, 400, []string{"rate (2.7) must be a whole number"}},
		{"PUT", "/api/cards/token-bucket/limit", `{"rate":"","period_ms":1000,"burst":5}`, 400, []string{"rate must be a whole number, not of type string"}},
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

// TestOtherSitesAreRefused checks that pages of other sites cannot give orders,
// and that our page may load only its own files.
func TestOtherSitesAreRefused(t *testing.T) {
	server := serve(t)
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	for _, tc := range []struct {
		method, path, host, origin, site string
		status                           int
	}{
		{"POST", "/api/reset", "", "", "cross-site", 403},
		{"POST", "/api/reset", "", "", "same-site", 403},
		{"POST", "/api/reset", "", "http://evil.example", "", 403},
		{"POST", "/api/reset", "", "", "same-origin", 200},
		{"POST", "/api/reset", "", "", "", 200}, // curl
		// A name of another site that points to this machine: for the browser
		// it is one site.
		{"POST", "/api/reset", "evil.example", "http://evil.example", "same-origin", 403},
		{"POST", "/api/reset", "evil.example" + port, "http://evil.example" + port, "", 403},
		{"GET", "/", "evil.example", "", "none", 403},
		{"GET", "/feed", "localhost.evil.example", "", "same-origin", 403},
		{"GET", "/try/sliding-log", "127.0.0.1.evil.example", "", "same-origin", 403},
		{"POST", "/api/reset", "localhost" + port, "http://localhost" + port, "same-origin", 200},
		{"POST", "/api/reset", "[::1]" + port, "http://[::1]" + port, "same-origin", 200},
		{"POST", "/api/reset", "192.168.1.7", "", "same-origin", 200},
		{"POST", "/api/reset", "Play.Example", "", "same-origin", 200}, // of -addr
		// Requests with an expensive answer.
		{"GET", "/feed", "", "", "cross-site", 403},
		{"GET", "/try/sliding-log", "", "", "cross-site", 403},
		{"GET", "/try/sliding-log", "", "", "same-origin", 200},
		{"GET", "/try/sliding-log", "", "", "none", 200},
		{"GET", "/try/sliding-log", "", "", "", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, server.URL+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tc.host
		for name, value := range map[string]string{"Origin": tc.origin, "Sec-Fetch-Site": tc.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var reply struct{ Error string }
		err = json.NewDecoder(res.Body).Decode(&reply)
		res.Body.Close()
		if res.StatusCode != tc.status {
			t.Errorf("%+v: status %d", tc, res.StatusCode)
		}
		if tc.status == 403 && (err != nil || !strings.HasPrefix(reply.Error, "playground: ")) {
			t.Errorf("%+v: it says %q, %v", tc, reply.Error, err)
		}
	}
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if policy := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'self'") {
		t.Errorf("the page's policy: %q", policy)
	}
}

// hear opens the connection of a page and returns the first message with the
// given name.
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

// TestTry checks that /try answers like a service.
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
