package global_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// patient sets long time-outs. The client ignores deadlines, which is go-redis's default.
func patient(o *redis.Options) {
	o.ContextTimeoutEnabled = false
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout, o.DialTimeout = 5*time.Second, 5*time.Second, 5*time.Second, 5*time.Second
}

// obedient sets the same time-outs. The client observes deadlines.
func obedient(o *redis.Options) {
	patient(o)
	o.ContextTimeoutEnabled = true
}

// clients are the options under which every deadline must hold.
var clients = map[string]func(*redis.Options){
	"defaults": defaults, "patient": patient, "obedient": obedient,
	"no time-outs": func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 },
	"no deadlines": func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -2, -2 },
}

// TestCallersDeadline checks that a call ends at the caller's deadline, to the
// nanosecond, with the error of the deadline. Regression: with ContextTimeoutEnabled the
// client's own time-out could come first, and the call returned ErrUnavailable.
func TestCallersDeadline(t *testing.T) {
	for name, opts := range clients {
		for _, when := range []string{"connected", "connecting"} {
			t.Run(name+"/"+when, func(t *testing.T) {
				inBubble(t, ten, global.Config{FailOpen: true}, opts, func(t *testing.T, s *scene) {
					if when == "connecting" {
						s.Limiter = newLimiter(t, s.link.Client(opts), ten, global.Config{FailOpen: true})
					}
					s.link.Pause()
					for range 3 {
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
						res, err := s.Allow(ctx, "k")
						s.took(30 * time.Millisecond)
						if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, hybridlimit.ErrUnavailable) || res.Allowed {
							t.Errorf("%+v, %v", res, err)
						}
						cancel()
					}
					s.link.Resume()
				})
			})
		}
	}
}

// TestTimeout checks that Config.Timeout holds as exactly if the caller has no deadline,
// or a later one. The error is then ErrUnavailable, because Redis is late.
func TestTimeout(t *testing.T) {
	for name, opts := range clients {
		for _, timeout := range []time.Duration{0, 40 * time.Millisecond} {
			t.Run(fmt.Sprint(name, "/", timeout), func(t *testing.T) {
				inBubble(t, ten, global.Config{Timeout: timeout}, opts, func(t *testing.T, s *scene) {
					want := timeout
					if want == 0 {
						want = 250 * time.Millisecond
					}
					s.link.Pause()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					for _, ctx := range []context.Context{t.Context(), ctx} {
						res, err := s.Allow(ctx, "k")
						s.took(want)
						wantErr(t, err, hybridlimit.ErrUnavailable, context.DeadlineExceeded)
						if res.Allowed || res.RetryAfter != want {
							t.Errorf("%+v", res)
						}
					}
					s.link.Resume()
				})
			})
		}
	}
}

// TestTheClientsShorterTimeoutHolds is a regression test: if the client's own time-out
// was shorter than Config.Timeout, the call waited for Config.Timeout.
func TestTheClientsShorterTimeoutHolds(t *testing.T) {
	short := func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = 20*time.Millisecond, 10*time.Millisecond }
	inBubble(t, ten, global.Config{}, short, func(t *testing.T, s *scene) {
		s.link.Pause()
		_, err := s.Allow(t.Context(), "k")
		s.took(20 * time.Millisecond)
		wantErr(t, err, hybridlimit.ErrUnavailable)
		s.link.Resume()
	})
}

// TestCallersCancel checks that a call whose ctx is cancelled returns at once, with
// context.Canceled and without ErrUnavailable.
func TestCallersCancel(t *testing.T) {
	why := errors.New("the browser was closed")
	inBubble(t, ten, global.Config{}, patient, func(t *testing.T, s *scene) {
		s.link.Pause()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(7*time.Millisecond, func() { cancel(why) })
		_, err := s.Allow(ctx, "k")
		s.took(7 * time.Millisecond)
		if !errors.Is(err, context.Canceled) || errors.Is(err, hybridlimit.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		s.link.Resume()
	})
}

// TestJustInTime checks that a decision that comes 1 ns before the deadline counts.
func TestJustInTime(t *testing.T) {
	inBubble(t, ten, global.Config{}, obedient, func(t *testing.T, s *scene) {
		allow(t, s.Limiter, "k", 1)
		s.link.Latency(10*time.Millisecond, 10*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond+1)
		defer cancel()
		if res, err := s.Allow(ctx, "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestStoppedRedis checks that calls end with a real server whose process is stopped: it
// accepts connections and does not answer. The client's own time-out is a minute, so the
// deadlines end the calls. TestCallersDeadline and TestTimeout check their times.
func TestStoppedRedis(t *testing.T) {
	server := redistest.New(t)
	l := newLimiter(t, server.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute }), ten, global.Config{})
	allow(t, l, "k", 1)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		deadline, bound time.Duration
		want            error
	}{
		{30 * time.Millisecond, 30 * time.Millisecond, context.DeadlineExceeded},
		{time.Hour, 250 * time.Millisecond, hybridlimit.ErrUnavailable},
	} {
		began := time.Now() // before the context, whose time has begun when this goroutine runs again
		ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
		_, err := l.Allow(ctx, "k")
		cancel()
		wantErr(t, err, tc.want)
		if d := time.Since(began); d < tc.bound || d >= time.Minute {
			t.Errorf("took %v, want %v", d, tc.bound)
		}
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "Redis answers again", func() bool {
		_, err := l.Allow(t.Context(), "other")
		return err == nil
	})
}
