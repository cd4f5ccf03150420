package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	os.Exit(m.Run())
}

// TestNothingIsLeft checks that start returns after Ctrl-C with an open page,
// and leaves no goroutine.
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

// ours returns the number of goroutines in code of this module, or of the
// libraries that it starts, without those of tests.
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
			t.Errorf("%q was accepted", args)
		}
	}
	err := start(t.Context(), []string{"-addr", "127.0.0.1:0", "-redis", "redis://127.0.0.1:1"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no Redis at 127.0.0.1:1") {
		t.Errorf("without a Redis: %v", err)
	}
	for url, want := range map[string]string{
		"http://localhost":           "http",
		"redis://localhost:port":     "invalid port",
		"redis://localhost/database": "database",
	} {
		if err := start(t.Context(), []string{"-redis", url}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// TestPasswordsAreNotPrinted checks that an error about a URL never contains
// its password.
func TestPasswordsAreNotPrinted(t *testing.T) {
	for _, url := range []string{
		"redis://:hunter2%zz@localhost", "redis://me:hunter2/more@localhost", "redis://:12/hunter2@localhost",
		"http://:hunter2@localhost", "redis://:hunter2@localhost:port", "redis://:hunter2@localhost/database", "redis://:hunter2@localhost?x=1",
	} {
		var out bytes.Buffer
		err := start(t.Context(), []string{"-redis", url}, &out, &out)
		if err == nil || !strings.Contains(err.Error(), "-redis: must be redis://user:password@host:port/db") {
			t.Errorf("%s: %v", url, err)
		}
		if text := fmt.Sprint(err, out.String()); strings.Contains(text, "hunter2") || strings.Contains(text, "more") {
			t.Errorf("%s: it prints %s", url, text)
		}
	}
}

// TestWhoCanReachItIsSaid checks that there is a warning if other machines can
// reach the address.
func TestWhoCanReachItIsSaid(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:0": false, "localhost:0": false, ":0": true, "0.0.0.0:0": true} {
		ctx, cancel := context.WithCancel(t.Context())
		out, to := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- start(ctx, []string{"-addr", addr}, to, io.Discard); to.Close() }()
		lines := bufio.NewScanner(out)
		lines.Scan()
		first := lines.Text()
		if want && (!strings.Contains(first, "http://localhost:") || !lines.Scan() || !strings.Contains(lines.Text(), "over the network")) {
			t.Errorf("%s: it says %q, then %q", addr, first, lines.Text())
		}
		cancel()
		if lines.Scan() {
			t.Errorf("%s: it says %q too", addr, lines.Text())
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
