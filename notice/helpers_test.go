package notice_test

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// TestMain silences go-redis, which reports every failed dial on stderr.
func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

var quiet = slog.New(slog.DiscardHandler)

// told are the crossings that one or more Limiters have told.
type told struct {
	mu  sync.Mutex
	all []notice.Crossing
}

func (r *told) on(c notice.Crossing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, c)
}

// take returns the crossings since the last take.
func (r *told) take() []notice.Crossing {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// ats returns the thresholds of crossings.
func ats(all []notice.Crossing) (out []float64) {
	for _, c := range all {
		out = append(out, c.At)
	}
	return out
}

// watch wraps a limiter, and closes the wrapper when the test ends.
func watch(tb testing.TB, l hybridlimit.Limiter, cfg notice.Config) *notice.Limiter {
	tb.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	n, err := notice.New(l, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

func newLocal(tb testing.TB, limit hybridlimit.Limit, cfg local.Config) *local.Limiter {
	tb.Helper()
	if cfg.Name == "" {
		cfg.Name = "api"
	}
	l, err := local.New(limit, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// ask calls AllowN, and fails the test on an error.
func ask(tb testing.TB, l hybridlimit.Limiter, key string, n int64) hybridlimit.Result {
	tb.Helper()
	res, err := l.AllowN(context.Background(), key, n)
	if err != nil {
		tb.Errorf("AllowN(%q, %d): %v", key, n, err)
	}
	return res
}

// border sleeps until a window of a length begins.
func border(of time.Duration) {
	time.Sleep(time.Until(time.Now().Truncate(of).Add(of)))
}
