package shed_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/shed"
)

// service is a server with one place, behind httplimit.
func service(t *testing.T, h http.Handler) (*shed.Shedder, *httptest.Server) {
	t.Helper()
	s := small(t)
	mw, err := httplimit.New(httplimit.Config{
		Shedder: s,
		Class:   func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(mw(h))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of panics
	server.Start()
	t.Cleanup(server.Close)
	return s, server
}

// fetch returns the status and Retry-After of a request.
func fetch(t *testing.T, server *httptest.Server, class string) (status int, retry string) {
	t.Helper()
	resp, err := server.Client().Get(server.URL + "/" + class)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// TestOverHTTP occupies the one place by a request that streams. Then a request of
// the first class is served, and one of another class is shed.
func TestOverHTTP(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s, server := service(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/write" {
			return
		}
		fmt.Fprintln(w, "first part")
		w.(http.Flusher).Flush()
		close(begun)
		<-end
	}))
	streamed := make(chan error, 1)
	go func() {
		resp, err := server.Client().Get(server.URL + "/write")
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		streamed <- err
	}()
	<-begun
	if status, _ := fetch(t, server, "critical"); status != http.StatusOK {
		t.Errorf("critical: %d", status)
	}
	if status, retry := fetch(t, server, "read"); status != http.StatusServiceUnavailable || retry == "" || retry == "0" {
		t.Errorf("read: %d, Retry-After %q", status, retry)
	}
	close(end)
	if err := <-streamed; err != nil {
		t.Error(err)
	}
	waitIdle(t, s)
}

// TestPanicsAndHijackedConnections end handlers in other ways. No place is kept.
func TestPanicsAndHijackedConnections(t *testing.T) {
	hijacked := make(chan net.Conn, 1)
	s, server := service(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/test" {
			panic("of a handler")
		}
		conn, _, err := w.(http.Hijacker).Hijack() // the middleware does not wrap w
		if err != nil {
			t.Error(err)
			return
		}
		hijacked <- conn
	}))
	if resp, err := server.Client().Get(server.URL + "/test"); err == nil {
		resp.Body.Close()
		t.Error("a panic was answered")
	}
	waitIdle(t, s)
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /write HTTP/1.1\r\nHost: x\r\n\r\n")
	theirs := <-hijacked
	defer theirs.Close()
	waitIdle(t, s) // the connection lives, and holds no place
	fmt.Fprintln(theirs, "still here")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "still here\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// waitIdle waits until no call runs. A handler may return after its answer.
func waitIdle(t *testing.T, s *shed.Shedder) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); s.Stats().InFlight > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", s.Stats())
		}
	}
}
