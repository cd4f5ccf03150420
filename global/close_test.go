package global_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// callsRunning counts the goroutines that the package has started. One goroutine sends
// the messages of a tag, one after the other.
func callsRunning() int {
	buf := make([]byte, 1<<20)
	text := string(buf[:runtime.Stack(buf, true)])
	return strings.Count(text, "runner.(*Gather).send.func") + strings.Count(text, "runner.(*Runner).within.func")
}

func TestClosed(t *testing.T) {
	inBubble(t, ten, global.Config{FailOpen: true}, defaults, func(t *testing.T, s *scene) {
		allow(t, s.Limiter, "k", 1)
		for range 3 {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		for _, tc := range []struct {
			key string
			n   int64
		}{{"k", 1}, {"k", 1000}, {"", 0}} {
			res, err := s.AllowN(t.Context(), tc.key, tc.n)
			if !errors.Is(err, hybridlimit.ErrClosed) || res != (hybridlimit.Result{}) {
				t.Errorf("AllowN(%q, %d) = %+v, %v", tc.key, tc.n, res, err)
			}
		}
		s.took(0)
	})
}

// TestCloseLeavesTheClient checks that the client and its other limiters work after
// Close.
func TestCloseLeavesTheClient(t *testing.T) {
	inBubble(t, ten, global.Config{}, defaults, func(t *testing.T, s *scene) {
		client := s.link.Client(nil)
		one, other := newLimiter(t, client, ten, global.Config{}), newLimiter(t, client, ten, global.Config{})
		allow(t, one, "k", 1)
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		allow(t, other, "k", 1)
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseWaitsForCalls checks that Close waits for calls in progress, and that they
// succeed.
func TestCloseWaitsForCalls(t *testing.T) {
	inBubble(t, ten, global.Config{}, defaults, func(t *testing.T, s *scene) {
		s.link.Latency(10*time.Millisecond, 10*time.Millisecond)
		done := make(chan error, 3)
		for range cap(done) {
			go func() {
				res, err := s.Allow(t.Context(), "k")
				if err == nil && !res.Allowed {
					err = errors.New("denied")
				}
				done <- err
			}()
		}
		synctest.Wait()
		if n := callsRunning(); n != 1 {
			t.Fatalf("%d calls run", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // a goroutine has left the runner a moment before it ends
		if n := callsRunning(); n != 0 {
			t.Errorf("%d calls run after Close", n)
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCloseIsBounded checks that Config.Timeout bounds a call that hangs after its caller
// has left. The client's own time-out is 5 s, or none.
func TestCloseIsBounded(t *testing.T) {
	for name, opts := range clients {
		t.Run(name, func(t *testing.T) {
			inBubble(t, ten, global.Config{}, opts, func(t *testing.T, s *scene) {
				s.link.Pause()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				_, err := s.Allow(ctx, "k")
				wantErr(t, err, context.DeadlineExceeded)
				synctest.Wait()
				if n := callsRunning(); n > 1 {
					t.Errorf("%d calls run", n)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // a goroutine has left the runner a moment before it ends
				if n, d := callsRunning(), time.Since(s.began); n != 0 || d > 250*time.Millisecond {
					t.Errorf("%d calls run after Close, at %v", n, d)
				}
				s.link.Resume()
			})
		})
	}
}

// TestCloseOvertakesACall is a regression test: a call that was overtaken by Close
// returned ErrUnavailable, and with FailOpen it was admitted.
func TestCloseOvertakesACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bubble := redistest.NewBubble(t)
		var l *global.Limiter
		subject := func(key string) string {
			_ = l.Close() // after AllowN has checked that the limiter is open, and before its message
			return key
		}
		l = newLimiter(t, bubble.Client(nil), ten, global.Config{FailOpen: true, TagBy: subject})
		res, err := l.Allow(t.Context(), "k")
		if !errors.Is(err, hybridlimit.ErrClosed) || errors.Is(err, hybridlimit.ErrUnavailable) || res != (hybridlimit.Result{}) {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestClosedClient checks that a call with a closed client returns ErrUnavailable. The
// limiter itself is open.
func TestClosedClient(t *testing.T) {
	inBubble(t, ten, global.Config{}, defaults, func(t *testing.T, s *scene) {
		client := s.link.Client(nil)
		l := newLimiter(t, client, ten, global.Config{})
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := l.Allow(t.Context(), "k")
		wantErr(t, err, hybridlimit.ErrUnavailable, redis.ErrClosed)
		if errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// TestReadyAndShutdown checks the verbs of a program's begin and end. Ready waits for Redis and loads the script. Shutdown ends the
// limiter, and does not wait for a silent Redis longer than its context.
func TestReadyAndShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		b.Kill()
		l := newLimiter(t, b.Client(nil), ten, global.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("without Redis: %v", err)
		}
		time.AfterFunc(time.Second, b.Restart)
		if err := l.Ready(t.Context()); err != nil {
			t.Errorf("Redis is back: %v", err)
		}
		if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		if err := l.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := l.Ready(t.Context()); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Ready after Shutdown: %v", err)
		}
		if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Errorf("Allow after Shutdown: %v", err)
		}

		link := b.Link()
		slow := newLimiter(t, link.Client(nil), ten, global.Config{Timeout: 10 * time.Second})
		if err := slow.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		link.Script(func(int, []string) redistest.Verdict { return redistest.Delay(time.Minute) })
		go func() { _, _ = slow.Allow(context.Background(), "k") }()
		time.Sleep(100 * time.Millisecond)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := slow.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("a call in progress: %v after %v", err, time.Since(began))
		}
		time.Sleep(15 * time.Second)
	})
}
