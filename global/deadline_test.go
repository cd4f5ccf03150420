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
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// patient is a client that does not look at deadlines, as by default, and
// waits long.
func patient(o *redis.Options) {
	o.ContextTimeoutEnabled = false
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout, o.DialTimeout = 5*time.Second, 5*time.Second, 5*time.Second, 5*time.Second
}

// obedient is one that looks at them.
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

// A caller's deadline holds to the nanosecond, however Redis hangs, and is
// the error. Regression: with ContextTimeoutEnabled the client's own time-out
// could be noticed first, and was returned as ErrUnavailable.
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

// Config.Timeout holds as exactly where the caller has no deadline, or a later
// one. It is Redis that is late then, not the caller.
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

// Regression: a client that gives up sooner than Config.Timeout was made to
// wait for it.
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

// A caller who goes away is told so at once, and Redis is not blamed.
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

// A decision that comes in time is not spoilt by a deadline close behind it.
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

// On a real server that is stopped: connections work, nobody is at home.
func TestStoppedRedis(t *testing.T) {
	server := redistest.New(t)
	l := newLimiter(t, server.Client(t, patient), ten, global.Config{})
	allow(t, l, "k", 1)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		deadline, bound time.Duration
		want            error
	}{
		{30 * time.Millisecond, 30 * time.Millisecond, context.DeadlineExceeded},
		{time.Minute, 250 * time.Millisecond, hybridlimit.ErrUnavailable},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
		began := time.Now()
		_, err := l.Allow(ctx, "k")
		cancel()
		wantErr(t, err, tc.want)
		// The client would take 5 s. The rest is for a machine that is busy.
		if d := time.Since(began); d < tc.bound || d > tc.bound+time.Second {
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
