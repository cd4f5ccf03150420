//go:build search

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestNothingIsLeft checks that start returns after Ctrl-C with an open page,
// and leaves no goroutine.
func TestNothingIsLeft(t *testing.T) {
	for name, args := range map[string][]string{
		"embedded": {"-addr", "127.0.0.1:0", "-history", "0s"},
		"redis":    {"-addr", "127.0.0.1:0", "-history", "0s"},
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

// TestWhoCanReachItIsSaid checks that there is a warning if other machines can
// reach the address, before the page has a history.
func TestWhoCanReachItIsSaid(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:0": false, "localhost:0": false, ":0": true, "0.0.0.0:0": true} {
		ctx, cancel := context.WithCancel(t.Context())
		notes, to := io.Pipe()
		ended := make(chan error, 1)
		var out bytes.Buffer
		go func() { ended <- start(ctx, []string{"-addr", addr}, &out, to); to.Close() }()
		lines := bufio.NewScanner(notes)
		lines.Scan()
		if first := lines.Text(); want != strings.Contains(first, "over the network") {
			t.Errorf("%s: it says %q first", addr, first)
		} else if want {
			lines.Scan()
		}
		if says := lines.Text(); !strings.Contains(says, "In 15s its page has a history: http://") || want != strings.Contains(says, "http://localhost:") {
			t.Errorf("%s: it says %q", addr, says)
		}
		cancel()
		if lines.Scan() {
			t.Errorf("%s: it says %q too", addr, lines.Text())
		}
		if err := <-ended; err != nil || out.Len() > 0 {
			t.Errorf("%s: %v, with %q on its output", addr, err, out.String())
		}
	}
}

// TestSlowReadersAreGivenUp checks that a page that does not read is
// disconnected.
func TestSlowReadersAreGivenUp(t *testing.T) {
	f := newFeed()
	f.first = time.Time{} // watched is to see the page
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

// TestHangAndSlow checks that the page distinguishes a hanging and a slow Redis,
// and that the fleet recovers.
func TestHangAndSlow(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(5 * time.Second)
		f.hit(t, fault{Action: "hang"})
		time.Sleep(4 * time.Second)
		hung := f.seen(t)
		if hung.Processes[0].Breaker == "closed" || hung.Redis.State != redisHung {
			t.Errorf("hung: %+v, %+v", hung.Redis, hung.Processes[0])
		}
		f.hit(t, fault{Action: "restore"})
		time.Sleep(4 * time.Second)
		// Slower than MaxWait, but faster than the breaker's limit for slow
		// calls.
		f.hit(t, fault{Action: "slow", Ms: 60})
		time.Sleep(4 * time.Second)
		slow := f.seen(t)
		if slow.Processes[0].Breaker != "closed" || slow.Redis.SlowMs != 60 {
			t.Errorf("slow by 60 ms: %+v, %+v", slow.Redis, slow.Processes[0])
		}
		f.hit(t, fault{Action: "slow", Ms: 200})
		time.Sleep(4 * time.Second)
		if p := f.seen(t).Processes[0]; p.Breaker == "closed" {
			t.Errorf("slow by 200 ms: %+v", p)
		}
		f.hit(t, fault{Action: "restore"})
		time.Sleep(4 * time.Second)
		if p := f.seen(t).Processes[0]; p.Breaker != "closed" {
			t.Errorf("back: %+v", p)
		}
	})
}

// TestPauseAndCrash checks that the other processes stop counting a paused or a
// crashed process when its heartbeat expires, and count it again after it
// continues.
func TestPauseAndCrash(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(5 * time.Second)
		for _, away := range []struct{ out, in string }{{"pause", "resume"}, {"crash", "start"}} {
			f.ask(t, func() error { return f.intervene(3, away.out) })
			time.Sleep(8 * time.Second)
			s := f.seen(t)
			if s.Processes[0].N != 3 {
				t.Errorf("%s: N is %d", away.out, s.Processes[0].N)
			}
			last := f.samples[len(f.samples)-1]
			if last.Admitted[2] != 0 {
				t.Errorf("%s: it has admitted %d", away.out, last.Admitted[2])
			}
			// The others take over its calls, so the total load is unchanged.
			if perSecond := last.Offered * 1000 / last.Span; perSecond < 1350 || perSecond > 1650 {
				t.Errorf("%s: %d calls a second", away.out, perSecond)
			}
			f.ask(t, func() error { return f.intervene(3, away.in) })
			time.Sleep(6 * time.Second)
			if s := f.seen(t); s.Processes[0].N != 4 || s.Processes[2].State != "running" {
				t.Errorf("%s: %+v", away.in, s.Processes)
			}
		}
		if b := boundOf(t, f.seen(t), "shared"); b.Verdict != "holds" || !strings.Contains(b.Why, "1 crashed") {
			t.Errorf("%+v", b)
		}
	})
}

// TestSettings checks that every change of a setting takes effect, in every
// mode, and that no decision fails.
func TestSettings(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(3 * time.Second)
		for _, change := range []func(*settings){
			func(s *settings) { s.Mode, s.Load = "strict", 1.5 }, // in the following modes the fleet can make fewer calls than three times the limit
			func(s *settings) { s.Mode = "exact" },
			func(s *settings) { s.Mode, s.K, s.TMs = "deferred", 10, 20 },
			func(s *settings) { s.Mode, s.Overshoot = "auto", 0 },
			func(s *settings) { s.Rate, s.Burst = 100, 50 },
			func(s *settings) { s.Processes = 6 },
			func(s *settings) { s.Processes, s.Load = 2, 5 },
			func(s *settings) { s.Naive = false },
		} {
			to := f.settings
			change(&to)
			f.ask(t, func() error { return f.set(to) })
			time.Sleep(4 * time.Second)
			s := f.seen(t)
			if s.Settings != to || len(s.Processes) != to.Processes {
				t.Fatalf("settings %+v, %d processes, want %+v", s.Settings, len(s.Processes), to)
			}
			if b := boundOf(t, s, "shared"); b.Verdict != "holds" {
				t.Errorf("%+v: %+v", to, b)
			}
			var admitted, span int64
			for _, p := range f.samples[len(f.samples)-8:] {
				for _, n := range p.Admitted {
					admitted += n
				}
				span += p.Span
			}
			if rate := float64(admitted) * 1000 / float64(span); rate < 0.8*float64(to.Rate) || rate > 1.2*float64(to.Rate) {
				t.Errorf("%+v: %.0f units a second", to, rate)
			}
		}
		if n := f.seen(t).Totals.Errors; n != 0 {
			t.Errorf("%d calls failed", n)
		}
	})
}

// TestFleetChangedInAnOutage checks that there is no verdict if a process begins
// while Redis is away. It begins with a whole share, so the fleet exceeds its
// shares, and that is not a fault of the limiter.
func TestFleetChangedInAnOutage(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, f *fleet){
		"resized": func(t *testing.T, f *fleet) { f.change(t, func(s *settings) { s.Processes = 12 }) },
		"crashed and started": func(t *testing.T, f *fleet) {
			for range 3 {
				for n := range 4 {
					f.ask(t, func() error { return f.intervene(n+1, "crash") })
					f.ask(t, func() error { return f.intervene(n+1, "start") })
				}
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			world(t, func(t *testing.T, f *fleet) {
				time.Sleep(3 * time.Second)
				f.hit(t, fault{Action: "kill"})
				time.Sleep(3 * time.Second)
				if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "holds" {
					t.Errorf("before: %+v", b)
				}
				change(t, f)
				time.Sleep(3 * time.Second)
				if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "none" || !strings.Contains(b.Why, "changed during the outage") {
					t.Errorf("after: %+v", b)
				}
				if b := boundOf(t, f.seen(t), "shared"); b.Verdict != "holds" {
					t.Errorf("%+v", b)
				}
				// The next outage is judged separately.
				f.hit(t, fault{Action: "restore"})
				time.Sleep(4 * time.Second)
				f.hit(t, fault{Action: "hang"})
				time.Sleep(3 * time.Second)
				if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "holds" {
					t.Errorf("the next outage: %+v", b)
				}
			})
		})
	}
}

// TestCountingAnewInAnOutage checks that a restart of the counting, by the
// button or by another limit or mode, includes a current outage.
func TestCountingAnewInAnOutage(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(3 * time.Second)
		f.hit(t, fault{Action: "hang"})
		time.Sleep(3 * time.Second)
		for name, change := range map[string]func(){
			"count anew": func() { f.ask(t, func() error { f.countAnew(time.Now()); return nil }) },
			"limit":      func() { f.change(t, func(s *settings) { s.Rate += 100 }) },
			"mode":       func() { f.change(t, func(s *settings) { s.Mode = "strict" }) },
			"K and T":    func() { f.change(t, func(s *settings) { s.K, s.TMs = 10, 20 }) },
		} {
			change()
			time.Sleep(4 * time.Second)
			b := boundOf(t, f.seen(t), "alone")
			if b.Verdict != "holds" || b.Allowed != 500 {
				t.Errorf("%s: %+v", name, b)
			}
		}
	})
}

// TestKillAfterSlow checks that a kill after a slow Redis is an outage like any
// other.
func TestKillAfterSlow(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(3 * time.Second)
		f.hit(t, fault{Action: "slow", Ms: 30})
		time.Sleep(2 * time.Second)
		f.hit(t, fault{Action: "kill"})
		time.Sleep(3 * time.Second)
		if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "holds" || strings.Contains(b.Why, "MaxWait") {
			t.Errorf("%+v", b)
		}
		f.hit(t, fault{Action: "slow", Ms: 30})
		if b := boundOf(t, f.seen(t), "alone"); b.Verdict != "none" || !strings.Contains(b.Why, "later than MaxWait") {
			t.Errorf("slow: %+v", b)
		}
	})
}

// TestNewLimitersWakeNobody checks that a new limiter for all processes leaves
// crashed processes crashed and paused ones paused.
func TestNewLimitersWakeNobody(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(2 * time.Second)
		f.ask(t, func() error { return f.intervene(2, "crash") })
		f.ask(t, func() error { return f.intervene(3, "pause") })
		before := f.resyncedNow(t)
		f.change(t, func(s *settings) { s.Mode = "deferred" })
		time.Sleep(2 * time.Second)
		s := f.seen(t)
		for i, want := range []string{"running", "crashed", "paused", "running"} {
			if s.Processes[i].State != want {
				t.Errorf("process %d is %s, want %s", i+1, s.Processes[i].State, want)
			}
		}
		last := f.samples[len(f.samples)-1]
		if last.Calls[1] != 0 || last.Calls[2] != 0 || last.Calls[0] == 0 {
			t.Errorf("calls by process: %v", last.Calls)
		}
		if after := f.resyncedNow(t); after < before {
			t.Errorf("resynced fell from %d to %d", before, after)
		}
		f.ask(t, func() error { return f.intervene(3, "resume") })
		f.ask(t, func() error { return f.intervene(2, "start") })
		time.Sleep(5 * time.Second)
		if s := f.seen(t); s.Processes[0].N != 4 {
			t.Errorf("N is %d", s.Processes[0].N)
		}
	})
}

// TestRetiredProcessesHaveTold checks that resynced still includes processes
// that have ended.
func TestRetiredProcessesHaveTold(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(2 * time.Second)
		f.hit(t, fault{Action: "wipe"})
		time.Sleep(3 * time.Second)
		before := f.resyncedNow(t)
		f.change(t, func(s *settings) { s.Processes = 1 })
		if after := f.resyncedNow(t); before == 0 || after < before {
			t.Errorf("%d before, %d after three of four processes have gone", before, after)
		}
	})
}

func (f *fleet) resyncedNow(t *testing.T) (n int64) {
	t.Helper()
	f.ask(t, func() error { n = f.resynced(); return nil })
	return n
}
