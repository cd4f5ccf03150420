package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// TestPagesAreBounded checks that there are at most maxPages pages, and that
// the next one gets an error.
func TestPagesAreBounded(t *testing.T) {
	f := newFeed()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.serve(w, r, func() any { return hello{} })
	}))
	defer server.Close()
	defer f.close()
	for range maxPages {
		if _, err := f.open(); err != nil {
			t.Fatal(err)
		}
	}
	status, text := do(t, "GET", server.URL, "")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, `{"error":"playground: 64 pages are open already: close some"}`) {
		t.Errorf("%d %s", status, text)
	}
	for page := range f.pages {
		f.mu.Lock()
		f.drop(page)
		f.mu.Unlock()
		break
	}
	if _, err := f.open(); err != nil {
		t.Errorf("after one page has closed: %v", err)
	}
}

// TestSlowReadersAreGivenUp checks that a page that does not read is
// disconnected.
func TestSlowReadersAreGivenUp(t *testing.T) {
	f := newFeed()
	f.patience = 200 * time.Millisecond
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.serve(w, r, func() any { return hello{} })
		close(ended)
	}))
	defer server.Close()
	defer f.close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n")
	redistest.Eventually(t, 10*time.Second, "the page is open", f.watched)
	large := strings.Repeat("x", 1<<20)
	for range 32 { // more than the buffers of a connection, and fewer messages than the backlog
		f.send("event", event{Text: large})
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the server still waits for the page")
	}
}

// TestSlowBodiesAreGivenUp checks that an order without its body is given up.
func TestSlowBodiesAreGivenUp(t *testing.T) {
	s := newStore(nil)
	defer s.close()
	p, err := newPlayground(s)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.patience = 100 * time.Millisecond
	server := httptest.NewServer(p.handler(""))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "POST /api/fleet/redis HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n{")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "cannot be read") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// TestPagesDoNotUndoEachOther checks that two pages can change different
// settings without undoing each other's change.
func TestPagesDoNotUndoEachOther(t *testing.T) {
	server := serve(t)
	for _, part := range []string{`{"load":2}`, `{"t_ms":20}`, `{"naive":false}`} {
		if status, text := do(t, "PATCH", server.URL+"/api/fleet/settings", part); status != 200 {
			t.Fatalf("%s: %d %s", part, status, text)
		}
	}
	want := initial
	want.Load, want.TMs, want.Naive = 2, 20, false
	var h hello
	hear(t, server.URL, "hello", &h)
	if h.Fleet.State.Settings != want {
		t.Errorf("%+v, want %+v", h.Fleet.State.Settings, want)
	}
}
