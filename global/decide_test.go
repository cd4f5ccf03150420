package global_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/lua"
)

// TestBadRequestsSendNothing checks that an invalid request costs no message.
func TestBadRequestsSendNothing(t *testing.T) {
	inBubble(t, ten, global.Config{MaxKeyBytes: 8}, defaults, func(t *testing.T, s *scene) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		before := s.link.Counts()
		for _, tc := range []struct {
			ctx  context.Context
			key  string
			n    int64
			want error
		}{
			{t.Context(), "", 1, hybridlimit.ErrEmptyKey},
			{t.Context(), "123456789", 1, hybridlimit.ErrKeyTooLong},
			{t.Context(), "k", 0, hybridlimit.ErrCost},
			{t.Context(), "k", -1, hybridlimit.ErrCost},
			{ended, "k", 1, context.Canceled},
		} {
			res, err := s.AllowN(tc.ctx, tc.key, tc.n)
			wantErr(t, err, tc.want)
			if res.Allowed || res.Granted != 0 {
				t.Errorf("AllowN(%q, %d) = %+v", tc.key, tc.n, res)
			}
		}
		if after := s.link.Counts(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("sent %v, before %v", after, before)
		}
		s.took(0)
	})
}

func TestAboveTheBurst(t *testing.T) {
	inBubble(t, hybridlimit.TokenBucket(10, time.Second, 20), global.Config{}, defaults, func(t *testing.T, s *scene) {
		want := hybridlimit.Result{
			Limit: 20, Remaining: 20, RetryAfter: hybridlimit.Never, Source: hybridlimit.SourceStatic, Policy: "api",
		}
		for _, n := range []int64{21, 1 << 62} {
			if res := allow(t, s.Limiter, "k", n); res != want {
				t.Errorf("AllowN(%d) = %+v, want %+v", n, res, want)
			}
		}
		if res := allow(t, s.Limiter, "k", 20); !res.Allowed {
			t.Errorf("the whole burst: %+v", res)
		}
		before := s.link.Count("EVALSHA").Seen
		want.Remaining, want.ResetAfter = 0, 2*time.Second
		if res := allow(t, s.Limiter, "k", 21); res != want {
			t.Errorf("after the whole burst: %+v, want %+v", res, want)
		}
		if sent := s.link.Count("EVALSHA").Seen - before; sent != 1 {
			t.Errorf("%d messages for a cost above the burst, want 1", sent)
		}
	})
}

// TestResults checks every field of the Result through a burst and its refill.
func TestResults(t *testing.T) {
	const ms = time.Millisecond
	inBubble(t, hybridlimit.TokenBucket(10, time.Second, 5), global.Config{Name: "logins"}, defaults, func(t *testing.T, s *scene) {
		for _, step := range []struct {
			pause time.Duration
			n     int64
			want  hybridlimit.Result
		}{
			{0, 2, hybridlimit.Result{Allowed: true, Granted: 2, Remaining: 3, ResetAfter: 200 * ms}},
			{0, 3, hybridlimit.Result{Allowed: true, Granted: 3, Remaining: 0, ResetAfter: 500 * ms}},
			{0, 1, hybridlimit.Result{RetryAfter: 100 * ms, ResetAfter: 500 * ms}},
			{0, 5, hybridlimit.Result{RetryAfter: 500 * ms, ResetAfter: 500 * ms}},
			{250 * ms, 3, hybridlimit.Result{Remaining: 2, RetryAfter: 50 * ms, ResetAfter: 250 * ms}},
			{0, 2, hybridlimit.Result{Allowed: true, Granted: 2, Remaining: 0, ResetAfter: 450 * ms}},
			{450 * ms, 1, hybridlimit.Result{Allowed: true, Granted: 1, Remaining: 4, ResetAfter: 100 * ms}},
			{time.Hour, 5, hybridlimit.Result{Allowed: true, Granted: 5, Remaining: 0, ResetAfter: 500 * ms}},
		} {
			time.Sleep(step.pause)
			step.want.Limit, step.want.Source, step.want.Policy = 5, hybridlimit.SourceRedis, "logins"
			if res := allow(t, s.Limiter, "k", step.n); res != step.want {
				t.Errorf("AllowN(%d) after %v = %+v, want %+v", step.n, step.pause, res, step.want)
			}
		}
	})
}

// TestRetryAfterIsExact checks that a call is denied 1 µs before its RetryAfter, and
// admitted at it.
func TestRetryAfterIsExact(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{
		hybridlimit.PerSecond(10),
		hybridlimit.TokenBucket(3, 7*time.Second, 2), // a unit every 2⅓ s
		hybridlimit.TokenBucket(1, 24*time.Hour, 1),
		hybridlimit.TokenBucket(10_000_000, time.Second, 100),
	} {
		for _, n := range []int64{1, limit.BurstSize()} {
			t.Run(fmt.Sprint(limit, " ", n), func(t *testing.T) {
				inBubble(t, limit, global.Config{}, defaults, func(t *testing.T, s *scene) {
					allow(t, s.Limiter, "k", limit.BurstSize())
					res := allow(t, s.Limiter, "k", n)
					if res.Allowed || res.RetryAfter <= 0 || res.RetryAfter%time.Microsecond != 0 {
						t.Fatalf("%+v", res)
					}
					time.Sleep(res.RetryAfter - time.Microsecond)
					if early := allow(t, s.Limiter, "k", n); early.Allowed || early.RetryAfter != time.Microsecond {
						t.Errorf("a microsecond before: %+v", early)
					}
					time.Sleep(time.Microsecond)
					if due := allow(t, s.Limiter, "k", n); !due.Allowed {
						t.Errorf("at RetryAfter: %+v", due)
					}
				})
			})
		}
	}
}

// TestResetAfterIsExact checks that the whole burst is there at ResetAfter, and not 1 µs
// before.
func TestResetAfterIsExact(t *testing.T) {
	limit := hybridlimit.TokenBucket(3, 7*time.Second, 5)
	inBubble(t, limit, global.Config{}, defaults, func(t *testing.T, s *scene) {
		res := allow(t, s.Limiter, "k", 4)
		time.Sleep(res.ResetAfter - time.Microsecond)
		if early := allow(t, s.Limiter, "k", 5); early.Allowed {
			t.Errorf("before ResetAfter: %+v", early)
		}
		time.Sleep(time.Microsecond)
		if due := allow(t, s.Limiter, "k", 5); !due.Allowed {
			t.Errorf("at ResetAfter: %+v", due)
		}
	})
}

// TestOneCommandPerDecision checks that a decision costs one command and one round trip.
func TestOneCommandPerDecision(t *testing.T) {
	inBubble(t, hybridlimit.PerSecond(5), global.Config{}, defaults, func(t *testing.T, s *scene) {
		allow(t, s.Limiter, "other", 1) // the script is loaded once
		before := s.link.Counts()
		s.link.Latency(time.Millisecond, 2*time.Millisecond)
		s.began = time.Now()
		const n = 20
		for range n {
			allow(t, s.Limiter, "k", 1)
			s.took(3 * time.Millisecond)
		}
		after := s.link.Counts()
		for name, c := range after {
			want := before[name].Forwarded
			if name == "EVALSHA" {
				want += n
			}
			if c.Forwarded != want {
				t.Errorf("%d %s, want %d", c.Forwarded, name, want)
			}
		}
	})
}

// TestIdentity checks that keys, names and prefixes do not share units. Two limiters of
// one name do.
func TestIdentity(t *testing.T) {
	inBubble(t, hybridlimit.PerHour(1), global.Config{}, defaults, func(t *testing.T, s *scene) {
		client := s.link.Client(nil)
		admits := func(want bool, key string, cfg global.Config) {
			t.Helper()
			l := newLimiter(t, client, hybridlimit.PerHour(1), cfg)
			if res := allow(t, l, key, 1); res.Allowed != want {
				t.Errorf("%q of %+v: %+v, want %v", key, cfg, res, want)
			}
		}
		admits(true, "k", global.Config{})
		admits(false, "k", global.Config{Prefix: "hl", Tags: lua.DefaultTags, FailOpen: true, Timeout: time.Second})
		admits(true, "K", global.Config{})
		admits(true, "k", global.Config{Name: "other"})
		admits(true, "k", global.Config{Prefix: "other"})
		admits(true, "{k}", global.Config{})
		admits(true, "k\r\nDEL x", global.Config{})
		admits(true, strings.Repeat("\x00é ", 100), global.Config{})
	})
}

// TestTagBy checks that keys of one text share a slot, and that each key has its own
// units.
func TestTagBy(t *testing.T) {
	user := func(key string) string { return strings.SplitN(key, "/", 2)[0] }
	inBubble(t, hybridlimit.PerHour(1), global.Config{Tags: 1000, TagBy: user}, defaults, func(t *testing.T, s *scene) {
		for i := range 10 {
			if res := allow(t, s.Limiter, fmt.Sprint("u1/", i), 1); !res.Allowed {
				t.Errorf("%d: %+v", i, res)
			}
		}
		slot := fmt.Sprintf("{%d}", lua.Names{Tags: 1000}.Tag("u1"))
		for _, key := range s.bubble.Mini.Keys() {
			if !strings.Contains(key, slot) {
				t.Errorf("key %q is not in slot %s", key, slot)
			}
		}
	})
}
