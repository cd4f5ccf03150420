package redistest

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is the time limit for events that take milliseconds on an idle
// machine.
const patience = 5 * time.Second

// recorder is a TB that records the messages of Fatalf and Skipf.
type recorder struct {
	testing.TB
	fatal, skip string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// record runs f like a separate test.
func record(t *testing.T, f func(TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

// noLeak fails the test if it ends with more goroutines than it began with. It
// must be called first, so that its check runs last.
func noLeak(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		if !poll(patience, func() bool { return runtime.NumGoroutine() <= before }) {
			stacks := make([]byte, 1<<20)
			t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before,
				stacks[:runtime.Stack(stacks, true)])
		}
	})
}

func noRetries(o *redis.Options) { o.MaxRetries = -1 }

const readTimeout = 50 * time.Millisecond

// impatient sets the options of a client that hides no fault: no retries, a
// short time-out.
func impatient(o *redis.Options) {
	o.MaxRetries, o.DialerRetries, o.ReadTimeout = -1, 1, readTimeout
}

// isTimeout reports whether err is the client's own read time-out.
func isTimeout(err error) bool {
	var te interface{ Timeout() bool }
	return errors.As(err, &te) && te.Timeout()
}

func isEOF(err error) bool   { return errors.Is(err, io.EOF) }
func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
func isNil(err error) bool   { return err == nil }

// connect gives the client an idle connection, even on a slow machine. A
// connection that times out in its handshake would never send the request of the
// test.
func connect(t *testing.T, c *redis.Client) {
	t.Helper()
	Eventually(t, patience, "the client connects", func() bool { return c.Ping(t.Context()).Err() == nil })
}

// testSubscribe checks that messages arrive in order. sub and pub are clients of
// the same server.
func testSubscribe(t *testing.T, sub, pub *redis.Client) {
	t.Helper()
	ctx := t.Context()
	ps := sub.Subscribe(ctx, "a", "b")
	defer ps.Close()
	for range 2 {
		if m, err := ps.Receive(ctx); err != nil {
			t.Fatalf("confirmation: %v, %v", m, err)
		}
	}
	pub.Publish(ctx, "a", "1")
	pub.Publish(ctx, "b", "2")
	for _, want := range []string{"1", "2"} {
		m, err := ps.ReceiveMessage(ctx)
		if err != nil || m.Payload != want {
			t.Fatalf("message %v, %v; want %s", m, err, want)
		}
	}
	if err := ps.Unsubscribe(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if m, err := ps.Receive(ctx); err != nil {
		t.Fatalf("confirmation: %v, %v", m, err)
	}
	if err := ps.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if m, err := ps.Receive(ctx); err != nil {
		t.Errorf("PONG: %v, %v", m, err)
	}
}

// Conns returns the number of client connections that the link carries now.
func (l *Link) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pumps)
}
