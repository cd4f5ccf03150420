package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/local"
)

// inFlight returns a limiter of n calls in flight.
func inFlight(t testing.TB, n int64, cfg local.ConcurrencyConfig) *local.ConcurrencyLimiter {
	t.Helper()
	cfg.Name = "running"
	l, err := local.NewConcurrency(hybridlimit.Concurrent(n), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// one is the key of all requests.
func one(*http.Request) string { return "k" }

// free fails the test if a permit is held.
func free(t testing.TB, l *local.ConcurrencyLimiter) {
	t.Helper()
	if n := l.Running("k"); n != 0 {
		t.Errorf("%d permits are held", n)
	}
}

// broken is an Acquirer with a bug.
type broken struct{ *local.ConcurrencyLimiter }

func (broken) AcquireN(context.Context, string, int64) (hybridlimit.Permit, hybridlimit.Result, error) {
	panic("a bug")
}

func TestRequestsHoldPermits(t *testing.T) {
	l := inFlight(t, 2, local.ConcurrencyConfig{})
	mw := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: one})
	var inner http.Handler
	var answers []*httptest.ResponseRecorder
	depth := 0
	h := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if depth++; l.Running("k") != int64(depth) {
			t.Errorf("%d permits are held by %d requests", l.Running("k"), depth)
		}
		if _, ok := w.(http.Hijacker); ok {
			t.Error("a writer without a connection can be hijacked")
		}
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		answers = append(answers, rec)
	}))
	inner = h
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if len(answers) != 2 || answers[0].Code != 429 || answers[1].Code != 200 || rec.Code != 200 {
		t.Fatalf("%d answers, the third request got %d", len(answers), answers[0].Code)
	}
	denial, served := answers[0].Header(), rec.Header()
	if got := denial.Get("RateLimit-Policy"); got != `"running";q=2;qu="concurrent-requests"` {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	if got := denial.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After: %s", got)
	}
	if got := served.Get("RateLimit"); got != `"running";r=1` {
		t.Errorf("RateLimit: %s", got)
	}
	free(t, l)
}

func TestPermitsComeBack(t *testing.T) {
	empty := newLocal(t, "rate", hybridlimit.Blocked())
	rate := func(l hybridlimit.Limiter) httplimit.Limit { return httplimit.Limit{Limiter: l, Key: one} }
	for name, tc := range map[string]struct {
		cfg     httplimit.Config
		limits  []httplimit.Limit
		handler http.HandlerFunc
		status  int
	}{
		"after a panic": {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, status: 200},
		"after a denial by a rate": {
			limits: []httplimit.Limit{rate(empty)},
			status: 429,
		},
		"after a denial by two rates": {
			limits: []httplimit.Limit{rate(empty), rate(newLocal(t, "second", hybridlimit.PerSecond(10)))},
			status: 429,
		},
		"after a failure": {
			limits: []httplimit.Limit{{Limiter: failing(hybridlimit.ErrUnavailable), Key: one, Name: "fails"}},
			status: 503,
		},
		"after a failure that passes": {
			cfg:    httplimit.Config{Failure: httplimit.FailOpen},
			limits: []httplimit.Limit{{Limiter: failing(hybridlimit.ErrUnavailable), Key: one, Name: "fails"}},
			status: 200,
		},
		"after a bad cost of another limit": {
			limits: []httplimit.Limit{{
				Limiter: newLocal(t, "rate", hybridlimit.PerSecond(10)),
				Key:     one,
				Cost:    func(*http.Request) int64 { return -1 },
			}},
			status: 400,
		},
		"after a request is shed": {
			cfg:    httplimit.Config{Shedder: &gatekeeper{shed: true}, Class: byPath},
			status: 503,
		},
		"after the shedder fails": {
			cfg:    httplimit.Config{Shedder: &gatekeeper{err: hybridlimit.ErrUnavailable}, Class: byPath},
			status: 503,
		},
		"after a panic of a second limit of calls in flight": {
			limits: []httplimit.Limit{{Limiter: broken{inFlight(t, 1, local.ConcurrencyConfig{})}, Key: one, Name: "broken"}},
			status: 200,
		},
		"after the handler": {status: 200},
	} {
		t.Run(name, func(t *testing.T) {
			l := inFlight(t, 1, local.ConcurrencyConfig{})
			tc.cfg.Logger = new(lines).logger()
			for _, first := range []bool{true, false} {
				own, all := httplimit.Limit{Limiter: l, Key: one}, tc.limits
				if first {
					all = append([]httplimit.Limit{own}, all...)
				} else {
					all = append(all[:len(all):len(all)], own)
				}
				h := middleware(t, tc.cfg, all...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if l.Running("k") != 1 {
						t.Errorf("%d permits are held", l.Running("k"))
					}
					if tc.handler != nil {
						tc.handler(w, r)
					}
				}))
				rec := httptest.NewRecorder()
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
				}()
				if rec.Code != tc.status || l.Running("k") != 0 {
					t.Errorf("status %d, want %d; %d permits are held", rec.Code, tc.status, l.Running("k"))
				}
			}
		})
	}
}

// A limiter without room for keys is unavailable. FailOpen does not admit the request: a client may choose its keys.
func TestTooManyKeysOfRunningRequests(t *testing.T) {
	l := inFlight(t, 1, local.ConcurrencyConfig{MaxKeys: 1})
	p, _, err := l.Acquire(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	h := middleware(t, httplimit.Config{Failure: httplimit.FailOpen, Logger: new(lines).logger()}, httplimit.Limit{Limiter: l, Key: one})(new(served))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if rec.Code != 503 {
		t.Errorf("status %d", rec.Code)
	}
}

// A connection that the handler takes over holds the permit until it is closed.
func TestHijackedConnectionsHoldPermits(t *testing.T) {
	l := inFlight(t, 1, local.ConcurrencyConfig{})
	conns := make(chan net.Conn, 1)
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"Hijacker": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return w.(http.Hijacker).Hijack()
		},
		"ResponseController": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: one})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, buf, err := hijack(w)
				if err != nil {
					t.Error(err)
					return
				}
				fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhello")
				buf.Flush()
				conns <- conn
			})))
			defer srv.Close()
			client, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
			conn := <-conns
			got := make([]byte, 200)
			n, _ := client.Read(got)
			if !strings.HasPrefix(string(got[:n]), "HTTP/1.1 101") {
				t.Errorf("%q", got[:n])
			}
			resp, err := http.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 429 || l.Running("k") != 1 {
				t.Errorf("status %d beside a hijacked connection; %d permits are held", resp.StatusCode, l.Running("k"))
			}
			if _, ok := conn.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn); !ok {
				t.Error("the connection below is hidden")
			}
			for range 2 {
				conn.Close()
			}
			free(t, l)
		})
	}
}

// A stream holds its permit to its end, over HTTP/1 and HTTP/2, and also if the client
// leaves. The writer can flush.
func TestStreamsHoldPermits(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			l, ended := inFlight(t, 1, local.ConcurrencyConfig{}), make(chan struct{}, 2)
			stream := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: l, Key: one})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "first")
				w.(http.Flusher).Flush()
				if r.ProtoMajor == 1 {
					if _, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader(", second")); err != nil {
						t.Error(err)
					}
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Error(err)
				}
				<-r.Context().Done()
			}))
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				stream.ServeHTTP(w, r)
				ended <- struct{}{}
			}))
			srv.EnableHTTP2 = h2
			srv.StartTLS()
			defer srv.Close()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			other, err := srv.Client().Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			other.Body.Close()
			if other.StatusCode != 429 || other.ProtoMajor != map[bool]int{false: 1, true: 2}[h2] {
				t.Errorf("%s %s beside a stream", other.Proto, other.Status)
			}
			<-ended
			if l.Running("k") != 1 {
				t.Errorf("%d permits are held by the stream", l.Running("k"))
			}
			leave()
			<-ended
			free(t, l)
		})
	}
}
