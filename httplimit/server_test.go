package httplimit_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
)

// On a real server, HEAD gets the fields of GET and no body. The next response on
// the connection is read correctly.
func TestHeadOfARealServer(t *testing.T) {
	h := middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerHour(2)), Key: fixed("k")})(&served{})
	server := httptest.NewServer(h)
	defer server.Close()
	for i, want := range []int{200, 200, 429, 429} {
		resp, err := server.Client().Head(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(body) != 0 || resp.StatusCode != want || resp.Header.Get("RateLimit") == "" || resp.Header.Get("Retry-After") == "" != (want == 200) {
			t.Errorf("request %d: %d, %q, %v, %v", i, resp.StatusCode, body, resp.Header, err)
		}
		if want == 429 && resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("request %d: %v", i, resp.Header)
		}
	}
}

// The handler gets the server's own ResponseWriter, so that it can flush and hijack
// the connection.
func TestHandlersKeepTheResponseWriter(t *testing.T) {
	mux := http.NewServeMux()
	flushed := make(chan struct{})
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-flushed
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "second\n")
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "mine")
	})
	server := httptest.NewServer(middleware(t, httplimit.Config{}, httplimit.Limit{Limiter: newLocal(t, "api", hybridlimit.PerHour(2)), Key: fixed("k")})(mux))
	defer server.Close()

	resp, err := server.Client().Get(server.URL + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "first\n" || resp.Header.Get("RateLimit") == "" {
		t.Errorf("%q, %v, %v", line, err, resp.Header)
	}
	close(flushed)
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "second\n" {
		t.Errorf("%q, %v", rest, err)
	}

	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
	if all, err := io.ReadAll(c); err != nil || string(all) != "mine" {
		t.Errorf("%q, %v", all, err)
	}
}

// until waits for the work of another goroutine.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not true after 10 s: %s", what)
		}
	}
}

// A Transport on real connections: it sends the whole body again, after the wait
// that the server asked for, and uses the connection again.
func TestTransportOverRealConnections(t *testing.T) {
	var requests, connections atomic.Int64
	var bodies [3]string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := requests.Add(1)
		if n <= 3 {
			bodies[n-1] = string(body)
		}
		if n < 3 {
			httplimit.Problem(w, r, httplimit.Denial{Status: http.StatusTooManyRequests})
			return
		}
		io.WriteString(w, "done")
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	tr, err := httplimit.NewTransport(httplimit.TransportConfig{Base: base, Pause: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("payload ", 10_000)
	resp, err := (&http.Client{Transport: tr}).Post(server.URL, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "done" || resp.StatusCode != 200 {
		t.Errorf("%d, %q, %v", resp.StatusCode, got, err)
	}
	for i, got := range bodies {
		if got != body {
			t.Errorf("attempt %d: %d bytes of %d", i, len(got), len(body))
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
