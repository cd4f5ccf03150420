package ui

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestServerIsStartedAgain checks that an open page reconnects by itself after
// its server has ended, something else has answered for a while, and the server
// has come back.
func TestServerIsStartedAgain(t *testing.T) {
	needBrowser(t)
	p := start(t)
	g := browse(t, p, 1000, 800)
	for _, part := range []string{"503", "ERR_", "Failed to load resource", "EventSource"} {
		g.expect(part)
	}
	g.click("#card-token-bucket .burst")
	g.wait(`document.querySelector("#card-token-bucket").dataset.sent === "10"`)
	p.end(t)
	g.wait(`document.querySelector("#connection").innerText === "reconnecting"`)
	// After an answer that is not a feed, a browser stops its own attempts.
	addr := strings.TrimPrefix(p.url, "http://")
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("SKIPPED: THE PORT OF A SERVER THAT HAS GONE CANNOT BE HAD AGAIN: %v", err)
	}
	asked := make(chan struct{}, 100)
	other := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		http.Error(w, "none here", http.StatusServiceUnavailable)
	})}
	go other.Serve(listener)
	select {
	case <-asked:
	case <-time.After(patience):
		t.Fatal("the page does not reconnect")
	}
	time.Sleep(200 * time.Millisecond)
	other.Close()
	startAt(t, addr, "-history", "0s")
	g.wait(`document.querySelector("#connection").innerText === "live"`)
	g.wait(`document.querySelector("#card-token-bucket").dataset.sent === "0"`) // a new server
}

// TestManyTabs checks more than six tabs, although a browser has only six
// connections for a server. Hidden tabs must not block others, and must not
// keep the load running.
func TestManyTabs(t *testing.T) {
	long(t)
	needBrowser(t)
	p := start(t)
	first := browse(t, p, 800, 600)
	first.hide(true)
	for range 6 {
		first.tab(p, 800, 600).hide(true)
	}
	last := first.tab(p, 800, 600)
	last.click("#card-token-bucket .burst")
	last.wait(`document.querySelector("#card-token-bucket").dataset.sent === "10"`)
	last.hide(true)
	time.Sleep(12 * time.Second) // 5 s until hidden tabs disconnect, 5 s until the load stops
	before := decisions(p.stats(t))
	time.Sleep(2 * time.Second)
	if after := decisions(p.stats(t)); after != before {
		t.Errorf("%d decisions for hidden tabs", after-before)
	}
	if sent := value[string](first, `document.querySelector("#card-token-bucket").dataset.sent`); sent == "10" {
		t.Error("a hidden tab gets updates")
	}
	first.hide(false)
	first.wait(`document.querySelector("#card-token-bucket").dataset.sent === "10"`)
	first.wait(`document.querySelector("#events").innerText.includes("No page is open: the load waits for one.")`)
	first.wait(`document.querySelector("#figure-admitted").innerText !== "0/s"`)
}

func decisions(s libraryStats) (n int64) {
	for _, both := range s.Sources {
		n += both[0] + both[1]
	}
	return n
}

// TestYourRedis checks that the page's statements about a Redis of the user are
// true.
func TestYourRedis(t *testing.T) {
	long(t)
	needBrowser(t)
	redis := redisServer(t)
	redis.do(t, "SET user:42 theirs", "+OK")
	g := browse(t, start(t, "-redis", "redis://"+redis.addr), 1360, 900)
	g.wait(`document.querySelector("#redis-state").innerText === "no fault"`)
	if says := g.text("#redis-name"); !strings.Contains(says, "faults affect only the playground's connections, and a wipe deletes only the playground's keys") {
		t.Errorf("the page says %q", says)
	}
	g.wait(`document.querySelector("#figure-n").innerText === "4"`)
	if g.text("#outage") != "Cut Redis off for 10 seconds" {
		t.Errorf("the one button says %q", g.text("#outage"))
	}
	if g.text("#redis-kill") != "Cut off" {
		t.Errorf("the button says %q", g.text("#redis-kill"))
	}
	g.click("#redis-kill")
	g.wait(`document.querySelector("#redis-state").innerText === "dead"`)
	g.click("#redis-wipe")
	g.wait(`document.querySelector("#events").innerText.includes("All other keys are unchanged")`)
	g.click("#redis-restore")
	g.wait(`document.querySelector("#redis-state").innerText === "no fault"`)
	redis.do(t, "EXISTS user:42", ":1")
}

// long skips slow tests unless HYBRIDLIMIT_LONG is set.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("HYBRIDLIMIT_LONG") == "" {
		t.Skip("slow: HYBRIDLIMIT_LONG is not set")
	}
}

// server is a redis-server that the test starts.
type server struct{ addr string }

func redisServer(t *testing.T) server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no redis-server in PATH, and CI is set: scripts/install-redis.sh installs one")
		}
		t.Skip("SKIPPED: REDIS-SERVER NOT INSTALLED: run scripts/install-redis.sh")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	cmd := exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := server{fmt.Sprintf("127.0.0.1:%d", port)}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", s.addr); err == nil {
			conn.Close()
			return s
		}
		if time.Now().After(deadline) {
			t.Fatal("redis-server does not come up")
		}
	}
}

// do sends a command and checks the first line of the answer.
func (s server) do(t *testing.T, command, want string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\n", command)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		t.Errorf("%s: %q, %v, want %q", command, line, err, want)
	}
}
