package debug_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybrid/debug"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// inBubble runs f with a hub of two limiters after its start: "api" with 10 units,
// of which alice has used 7, and "hot".
func inBubble(t *testing.T, f func(t *testing.T, b *redistest.Bubble, h *hybrid.Hub)) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h, err := hybrid.NewHub(b.Client(nil), hybrid.HubConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		for name, limit := range map[string]hybridlimit.Limit{"api": hybridlimit.TokenBucket(1, time.Hour, 10), "hot": hybridlimit.PerSecond(1000)} {
			l, err := h.Limiter(limit, hybrid.Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			if name == "api" {
				time.Sleep(2100 * time.Millisecond)
				if _, err := l.AllowN(t.Context(), alice, 7); err != nil {
					t.Fatal(err)
				}
			}
		}
		f(t, b, h)
	})
}

const alice = "alice@example.com"

// do sends a request to a handler.
func do(t *testing.T, h http.Handler, method, query, accept string) (int, string, http.Header) {
	t.Helper()
	target, body := "/debug/limits?"+query, io.Reader(nil)
	if method == http.MethodPost {
		target, body = "/debug/limits", strings.NewReader(query)
	}
	r := httptest.NewRequest(method, target, body)
	r.Host = "127.0.0.1:6060"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header()
}

func TestKeyAsText(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.Bubble, h *hybrid.Hub) {
		const query = "limiter=api&key=alice%40example.com"
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			status, body, header := do(t, debug.Handler(h), method, query, "")
			for _, want := range []string{
				"the next call asks Redis, for 20ms at most, because nothing is leased, and credit is 0 units: Overshoot 0.05 × burst 10 / 1 is below one, and an Overshoot of 0.1 gives 1\n",
				`key         "alice@example.com", key_digest `, "limiter     api: 1 per 1h0m0s, burst 10 (token bucket), mode auto\n",
				"Redis view  3 units left, 0s ago\n", "owed        0 units, 0 of them by the fallback; 0 calls are waiting\n",
				"leased      nothing\n", "fleet       1 processes, credit 0\n", "switch      normal\n", "breaker     closed\n",
			} {
				if !strings.Contains(body, want) {
					t.Errorf("%s: no %q in\n%s", method, want, body)
				}
			}
			if status != http.StatusOK || header.Get("Content-Type") != "text/plain; charset=utf-8" || header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%d, %v", status, header)
			}
			if strings.Contains(body, "Redis now") {
				t.Errorf("Redis was asked:\n%s", body)
			}
		}
		_, body, _ := do(t, debug.Handler(h), http.MethodGet, query+"&redis=1", "")
		for _, want := range []string{"Redis now   allowed because the bucket has 3 of 10 units left\n", "7 units debited, 0 in the ledger, expires in 7h0m2s\n"} {
			if !strings.Contains(body, want) {
				t.Errorf("no %q in\n%s", want, body)
			}
		}
		b.Kill()
		_, body, _ = do(t, debug.Handler(h), http.MethodGet, query+"&redis=1", "")
		if !strings.Contains(body, "; Redis, asked now, did not answer\n") {
			t.Errorf("without Redis:\n%s", body)
		}
	})
}

func TestKeyAsJSON(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Bubble, h *hybrid.Hub) {
		for query, accept := range map[string]string{"format=json&": "", "": "application/json"} {
			status, body, header := do(t, debug.Handler(h), http.MethodGet, query+"limiter=api&key=alice%40example.com&redis=1", accept)
			var got struct {
				Policy, Key, Limit, Outcome, Sentence, Breaker string
				Owed, ViewLeft                                 int64
				Redis                                          struct{ Left, Debited int64 }
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || header.Get("Content-Type") != "application/json" {
				t.Fatalf("%d, %v, %v:\n%s", status, header, err, body)
			}
			if got.Policy != "api" || got.Key != alice || got.Limit != "1/h burst 10" || got.Outcome != "ask" || got.Breaker != "closed" || got.Redis.Left != 3 || got.Redis.Debited != 7 || !strings.Contains(got.Sentence, "Redis now: allowed") {
				t.Errorf("%+v", got)
			}
		}
		if _, body, _ := do(t, debug.Handler(h), http.MethodGet, "format=text&limiter=api&key=k", "application/json"); !strings.HasPrefix(body, "the next call") {
			t.Errorf("format=text: %s", body)
		}
	})
}

func TestListing(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Bubble, h *hybrid.Hub) {
		_, body, _ := do(t, debug.Handler(h), http.MethodGet, "", "")
		for _, want := range []string{
			"breaker closed, ", "\nmean sync: ", ", 1 keys\n", "0 dropped, 0 refunded, largest debt 0\n", "\napi: 1 per 1h0m0s, burst 10 (token bucket), mode auto, switch normal\n", "\nhot: 1000 per 1s, ",
			"  allowed  1 by redis\n", "  denied   none\n", "  keys     1 in memory, 0 evicted\n",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("no %q in\n%s", want, body)
			}
		}
		if strings.Contains(body, "alice") {
			t.Errorf("the list shows a key:\n%s", body)
		}
		_, body, _ = do(t, debug.Handler(h), http.MethodGet, "limiter=hot&format=json", "")
		var got struct{ Limiters []struct{ Name string } }
		if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Limiters) != 1 || got.Limiters[0].Name != "hot" {
			t.Errorf("%v: %s", err, body)
		}
	})
}

// A person finds the key of a client by the name or the address. An answer about a key
// that the process does not know says so.
func TestKeyOfAClient(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Bubble, h *hybrid.Hub) {
		api := h.Limiters()[0]
		user := httplimit.User("", func(r *http.Request) string { return r.Header.Get("User") })
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "192.0.2.7:4711"
		r.Header.Set("User", "bob & carol")
		for _, key := range []httplimit.KeyFunc{user, httplimit.PeerIP()} {
			if _, err := api.AllowN(t.Context(), key(r), 10); err != nil {
				t.Fatal(err)
			}
		}
		const unknown = "this process knows nothing of the key"
		for query, want := range map[string]string{
			"user=bob+%26+carol": `key         "user:bob & carol", key_digest `, "ip=192.0.2.7": `key         "ip:192.0.2.7", key_digest `,
			"ip=%3A%3Affff%3A192.0.2.7": `key         "ip:192.0.2.7", key_digest `,
		} {
			if _, body, _ := do(t, debug.Handler(h), http.MethodGet, "limiter=api&"+query, ""); !strings.Contains(body, want) ||
				!strings.HasPrefix(body, "denied") || strings.Contains(body, unknown) {
				t.Errorf("%s: no %q in\n%s", query, want, body)
			}
		}
		if _, body, _ := do(t, debug.Handler(h), http.MethodGet, "limiter=api&key=bob", ""); !strings.Contains(body, "\nmemory      "+unknown) {
			t.Errorf("another key:\n%s", body)
		}
	})
}

// With one limiter its name is not needed. A hostile key stays text.
func TestHostileKey(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Bubble, h *hybrid.Hub) {
		h.Limiters()[1].Close()
		_, body, header := do(t, debug.Handler(h), http.MethodGet, "key="+url.QueryEscape("<script>\nlimiter  fine\x1b[2J"), "")
		if strings.Contains(body, "\nlimiter  fine") || strings.Contains(body, "\x1b") || !strings.Contains(body, `"<script>\nlimiter  fine\x1b[2J"`) || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
			t.Errorf("%v\n%s", header, body)
		}
	})
}

func TestBadQuestions(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Bubble, h *hybrid.Hub) {
		for _, c := range []struct {
			method, query string
			status        int
			want          string
		}{
			{"GET", "limiter=nope&key=k", 404, `the hub has no limiter "nope"`},
			{"GET", "key=k", 400, "the hub has 2 limiters: select one with limiter=name"},
			{"GET", "limiter=api&key=", 400, "empty"},
			{"GET", "limiter=api&key=" + strings.Repeat("k", 600), 400, "600 bytes, at most 512"},
			{"GET", "limiter=api&key=a&key=b", 400, `parameter "key" occurs 2 times`},
			{"GET", "limiter=api&redis=1", 400, "redis=1 needs a key"},
			{"GET", "limiter=api&key=k&redis=yes", 400, `redis ("yes") must be 0 or 1`},
			{"GET", "format=xml", 400, `format ("xml") must be json or text`},
			{"GET", "reset=1", 400, `unknown parameter "reset": the parameters are limiter, key, user, ip, redis and format`},
			{"GET", "limiter=api&key=k&user=ann", 400, "the parameters key, user and ip name one key"},
			{"GET", "limiter=api&ip=192.0.2.1:80", 400, `ip ("192.0.2.1:80") must be an IP address without a port`},
			{"GET", "limiter=api&user=", 400, "empty"},
			{"GET", "key=%zz", 400, "the query cannot be read"},
			{"DELETE", "limiter=api&key=k", 405, "method DELETE is not allowed: use GET, HEAD or POST"},
			{"POST", "key=" + strings.Repeat("k", 250_000), 400, "too large"},
			{"POST", "limiter=api&key=" + strings.Repeat("%c3", 64<<10), 400, "65536 bytes, at most 512"}, // the longest, in its longest form
		} {
			for _, accept := range []string{"", "application/json"} {
				status, body, header := do(t, debug.Handler(h), c.method, c.query, accept)
				var asJSON struct{ Error string }
				said := body
				if accept != "" {
					if err := json.Unmarshal([]byte(body), &asJSON); err != nil {
						t.Errorf("%s: %v in %s", c.query, err, body)
					}
					said = asJSON.Error
				}
				if status != c.status || !strings.Contains(said, c.want) || status == 405 && header.Get("Allow") != "GET, HEAD, POST" {
					t.Errorf("%s %.40s: %d, %s, want %d, %s", c.method, c.query, status, said, c.status, c.want)
				}
			}
		}
		l := h.Limiters()[0]
		h.Close()
		if status, body, _ := do(t, debug.Handler(h), "GET", "limiter=api&key=k", ""); status != 503 {
			t.Errorf("closed: %d, %s (%s)", status, body, l.Name())
		}
	})
}

// A POST without a form was once answered with the list, like a request without
// parameters.
func TestPostThatIsNoForm(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Bubble, h *hybrid.Hub) {
		for kind, want := range map[string]int{
			"": 415, "application/json": 415, "multipart/form-data; boundary=x": 415, "text/plain": 415,
			"application/x-www-form-urlencoded": 200, "application/x-www-form-urlencoded; charset=utf-8": 200,
		} {
			r := httptest.NewRequest(http.MethodPost, "http://localhost/debug/limits", strings.NewReader("limiter=api&key=k"))
			if kind != "" {
				r.Header.Set("Content-Type", kind)
			}
			w := httptest.NewRecorder()
			debug.Handler(h).ServeHTTP(w, r)
			if w.Code != want || want == 415 && !strings.Contains(w.Body.String(), "must be application/x-www-form-urlencoded") {
				t.Errorf("%q: %d, %s", kind, w.Code, w.Body)
			}
		}
	})
}

// A page of another site gets no answer, even if its name points to this host.
func TestHosts(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Bubble, h *hybrid.Hub) {
		for host, want := range map[string]int{
			"localhost": 200, "localhost:6060": 200, "LOCALHOST.": 200, "app.localhost": 200, "127.0.0.1": 200, "127.0.0.1:6060": 200, "[::1]:6060": 200, "[::1]": 200, "10.1.2.3:80": 200, "": 200,
			"limits.internal": 200, "Limits.Internal.:6060": 200,
			"evil.example": 421, "evil.example:6060": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "notlocalhost": 421, "x.limits.internal": 421,
		} {
			r := httptest.NewRequest(http.MethodGet, "/debug/limits?limiter=api&key=k", nil)
			r.Host = host
			w := httptest.NewRecorder()
			debug.Handler(h, "limits.internal").ServeHTTP(w, r)
			if w.Code != want || want == 421 && (!strings.Contains(w.Body.String(), "must be localhost, an IP address") || strings.Contains(w.Body.String(), "allowed")) {
				t.Errorf("%q: %d, %s", host, w.Code, w.Body)
			}
		}
	})
}

func TestHandlerOfNothing(t *testing.T) {
	defer func() {
		if said := recover(); said != "debug: Handler: hub (nil) is required" {
			t.Errorf("%v", said)
		}
	}()
	debug.Handler(nil)
}
