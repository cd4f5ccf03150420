package global_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// scene is a limiter with a Redis in virtual time. The link between them can fail. Calls
// take no time unless a test sets a latency.
type scene struct {
	*global.Limiter
	t      *testing.T
	bubble *redistest.Bubble
	link   *redistest.MemLink
	began  time.Time
}

// defaults keeps the client's options.
func defaults(*redis.Options) {}

// inBubble runs f with a scene whose client is connected.
func inBubble(t *testing.T, limit hybridlimit.Limit, cfg global.Config, opts func(*redis.Options), f func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, bubble: redistest.NewBubble(t)}
		s.link = s.bubble.Link()
		client := s.link.Client(opts)
		s.Limiter = newLimiter(t, client, limit, cfg)
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		s.began = time.Now()
		f(t, s)
	})
}

// took fails the test unless the given virtual time has passed since the last call of
// took.
func (s *scene) took(want time.Duration) {
	s.t.Helper()
	if d := time.Since(s.began); d != want {
		s.t.Errorf("took %v, want %v", d, want)
	}
	s.began = time.Now()
}

// patientConfig is for tests with a real Redis that do not test time: a busy machine may
// need more than the default 250 ms.
var patientConfig = global.Config{Timeout: 30 * time.Second}

func newLimiter(t testing.TB, rdb redis.UniversalClient, limit hybridlimit.Limit, cfg global.Config) *global.Limiter {
	if cfg.Breaker.Failures == 0 {
		cfg.Breaker = breaker.Config{Failures: 1 << 20, FailureRatio: -1} // tests of single faults: breaker_test.go has the others
	}
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "api"
	}
	l, err := global.New(rdb, limit, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// allow calls AllowN and fails the test on an error.
func allow(t testing.TB, l *global.Limiter, key string, n int64) hybridlimit.Result {
	t.Helper()
	res, err := l.AllowN(t.Context(), key, n)
	if err != nil {
		t.Fatalf("AllowN(%q, %d): %v", key, n, err)
	}
	return res
}

// wantErr fails the test unless err matches all wanted errors.
func wantErr(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("error %v, want one that is %v", err, w)
		}
	}
}
