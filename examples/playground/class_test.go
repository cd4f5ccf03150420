package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// classCard returns a card with the class batch, whose floor is 2 of 10 tokens.
func classCard(t *testing.T) (*card, *cardState) {
	t.Helper()
	var last cardState
	var c *card
	var err error
	c, err = newCard("test", "Test", hybridlimit.TokenBucket(1, 2*time.Second, 10), func() { last = c.state() },
		hybridlimit.Class{Name: "batch", Floor: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	return c, &last
}

// TestClassesOfACard takes tokens of both classes down to the floor, and then to
// nothing.
func TestClassesOfACard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, state := classCard(t)
		for i, step := range []struct {
			class        string
			n, admitted  int
			said         string
			policy, left string
			sent, passed int64 // of the class
			used         float64
			pause        time.Duration // before the step
			retryAfter   string
		}{
			{"critical", 1, 1, "Admitted: critical took a token, 9 left.", `"test";q=10;w=20`, `"test";r=9;`, 1, 1, 1, 0, ""},
			{"batch", 1, 1, "Admitted: batch took a token, and above its floor 6 left.", `"test";q=8;w=16`, `"test";r=6;`, 1, 1, 2, 0, ""},
			{"batch", 10, 6, "6 of 10 admitted. The last one: Denied: batch leaves the last 2 tokens to critical requests. There is a token for it in 2.0 s.", `"test";q=8;w=16`, `"test";r=0;`, 11, 7, 8, 0, "2"},
			{"critical", 1, 1, "Admitted: critical took a token that batch leaves to it, 1 left.", `"test";q=10;w=20`, `"test";r=1;`, 2, 2, 9, 0, ""},
			{"critical", 3, 1, "1 of 3 admitted. The last one: Denied: the bucket is empty, also for critical. The next token comes in 2.0 s.", `"test";q=10;w=20`, `"test";r=0;`, 5, 3, 10, 0, "2"},
			{"batch", 1, 0, "Denied: batch leaves the last 2 tokens to critical requests. There is a token for it in 6.0 s.", `"test";q=8;w=16`, `"test";r=0;`, 12, 7, 10, 0, "6"},
			{"batch", 1, 1, "Admitted: batch took a token, and above its floor none is left.", `"test";q=8;w=16`, `"test";r=0;`, 13, 8, 8, 6 * time.Second, ""},
		} {
			time.Sleep(step.pause)
			answers := c.send(step.class, step.n)
			admitted := 0
			for _, a := range answers {
				if a.Status == http.StatusOK {
					admitted++
				}
			}
			last := answers[len(answers)-1]
			if admitted != step.admitted || header(last, "Retry-After") != step.retryAfter {
				t.Errorf("step %d: %d admitted, want %d; the last: %+v", i, admitted, step.admitted, last)
			}
			if got := header(last, "Ratelimit-Policy"); got != step.policy {
				t.Errorf("step %d: RateLimit-Policy: %s, want %s", i, got, step.policy)
			}
			if got := header(last, "Ratelimit"); !strings.HasPrefix(got, step.left) {
				t.Errorf("step %d: RateLimit: %s, want %s", i, got, step.left)
			}
			if state.Last != step.said {
				t.Errorf("step %d: it says %q, want %q", i, state.Last, step.said)
			}
			if state.Used < step.used-0.001 || state.Used > step.used+0.001 {
				t.Errorf("step %d: %v units are used, want %v", i, state.Used, step.used)
			}
			place := slices.IndexFunc(state.Classes, func(s classState) bool { return s.Name == step.class })
			if got := state.Classes[place]; got.Sent != step.sent || got.Passed != step.passed {
				t.Errorf("step %d: the class has %+v", i, got)
			}
			if d := state.Dots[len(state.Dots)-1]; d.Class != step.class || d.Allowed != (last.Status == http.StatusOK) {
				t.Errorf("step %d: the last dot is %+v", i, d)
			}
		}
		if b, cr := state.Classes[0], state.Classes[1]; b.Name != "batch" || b.Floor != 2 || cr.Name != "critical" || cr.Floor != 0 {
			t.Errorf("classes %+v", state.Classes)
		}
		if state.Sent != 18 || state.Passed != 11 {
			t.Errorf("state %+v", state)
		}
		if err := c.reset(); err != nil {
			t.Fatal(err)
		}
		if b, cr := state.Classes[0], state.Classes[1]; b.Sent != 0 || b.Passed != 0 || cr.Sent != 0 || cr.Passed != 0 || state.Remaining != 10 {
			t.Errorf("after a reset: %+v", state)
		}
	})
}

// TestFloorsOfACard checks the floor for other limits: it is rounded up to whole
// tokens, and a bucket of one token has none.
func TestFloorsOfACard(t *testing.T) {
	c, state := classCard(t)
	for burst, want := range map[int64]int64{100: 20, 11: 3, 2: 1, 1: 0} {
		if err := c.setLimit(cardOrder{1, 60_000, burst}); err != nil {
			t.Fatal(err)
		}
		if got := state.Classes[0].Floor; got != want {
			t.Errorf("with a burst of %d the floor is %d, want %d", burst, got, want)
		}
	}
	for burst, want := range map[int64]string{2: "leaves the last token to critical", 1: "the bucket is empty, also for batch"} {
		if err := c.setLimit(cardOrder{1, 60_000, burst}); err != nil {
			t.Fatal(err)
		}
		c.send("critical", 2)
		if c.send("batch", 1); !strings.Contains(state.Last, want) {
			t.Errorf("with a burst of %d it says %q", burst, state.Last)
		}
	}
}

// TestClassesOfRoutes checks that the class of a request is the one of its route,
// and that a request without a class, or with one in a field, is not critical.
func TestClassesOfRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, state := classCard(t)
		p := &playground{cards: []*card{c}}
		mux := http.NewServeMux()
		mux.HandleFunc("GET /try/{card}", p.try)
		mux.HandleFunc("GET /try/{card}/{class}", p.try)
		ask := func(path string) int {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("Class", "critical")
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			return w.Code
		}
		for range 8 {
			if status := ask("/try/test"); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
		}
		for _, step := range []struct {
			path   string
			status int
		}{
			{"/try/test", 429},
			{"/try/test?class=critical", 429},
			{"/try/test/batch", 429},
			{"/try/test/Critical", 404},
			{"/try/test/critical", 200},
			{"/try/test/critical", 200},
			{"/try/test/critical", 429},
		} {
			if status := ask(step.path); status != step.status {
				t.Errorf("%s: status %d, want %d", step.path, status, step.status)
			}
		}
		if b, cr := state.Classes[0], state.Classes[1]; b.Sent != 11 || b.Passed != 8 || cr.Sent != 3 || cr.Passed != 2 {
			t.Errorf("classes %+v", state.Classes)
		}
	})
}

// TestClassesOfOrders checks the classes that a page may ask for.
func TestClassesOfOrders(t *testing.T) {
	server := serve(t)
	for _, tc := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/api/cards/classes/send", `{"n":10,"class":"batch"}`, 200, `"status":429`},
		{"/api/cards/classes/send", `{"n":1,"class":"critical"}`, 200, `"status":200`},
		{"/api/cards/classes/send", `{"n":1}`, 400, `class (\"\") must be batch or critical`},
		{"/api/cards/classes/send", `{"n":0,"class":"admin"}`, 400, `n (0) must be 1 to 100`},
		{"/api/cards/classes/send", `{"n":0,"class":"admin"}`, 400, `class (\"admin\") must be batch or critical`},
		{"/api/cards/classes/send", `{"n":1,"class":7}`, 400, `class is of type number`},
		{"/api/cards/token-bucket/send", `{"n":1,"class":"critical"}`, 400, `class (\"critical\") must be empty: the card has no classes`},
	} {
		if status, text := do(t, "POST", server.URL+tc.path, tc.body); status != tc.status || !strings.Contains(text, tc.want) {
			t.Errorf("%s %s: %d %s, want %s", tc.path, tc.body, status, text, tc.want)
		}
	}
	for _, path := range []string{"/try/token-bucket/critical", "/try/classes/admin"} {
		status, text := do(t, "GET", server.URL+path, "")
		var reply struct{ Error string }
		if err := json.Unmarshal([]byte(text), &reply); status != 404 || err != nil || !strings.Contains(reply.Error, "no class") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	var h hello
	hear(t, server.URL, "hello", &h)
	if s := h.Cards[6]; s.ID != "classes" || s.Classes[0] != (classState{"batch", 2, 10, 8}) || s.Classes[1] != (classState{"critical", 0, 1, 1}) {
		t.Errorf("a new page has %+v", s)
	}
	if s := h.Cards[0]; s.Sent != 0 || len(s.Classes) != 0 {
		t.Errorf("a card without classes has %+v", s)
	}
}
