package global_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// retries sets go-redis's default number of dials: it dials in the background for half a
// second.
func retries(o *redis.Options) { o.DialerRetries, o.MaxRetries = 5, -1 }

// TestTheDialIsTheCause checks the error of a call that waits for a connection while
// Redis is down: it wraps the error of the failed dials and the time-out. If a later dial
// hangs, the error wraps only the time-out.
func TestTheDialIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var hang atomic.Bool
		rdb := b.Client(func(o *redis.Options) {
			retries(o)
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if hang.Load() {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				return dial(ctx, network, addr)
			}
		})
		// The breaker hears of the third failure while the fourth call begins, before or after it.
		never := breaker.Config{Failures: 100, FailureRatio: -1}
		l, err := global.New(rdb, hybridlimit.PerSecond(10), global.Config{Name: "api", Timeout: 250 * time.Millisecond, Breaker: never})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		call := func() error { _, err := l.Allow(t.Context(), "k"); return err }
		if err := call(); err != nil {
			t.Fatal(err)
		}
		b.Kill()
		call() // fails on the open connection
		for range 3 {
			err := call()
			if !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, hybridlimit.ErrUnavailable) {
				t.Errorf("Redis was killed: %v", err)
			}
			if want := "connection refused (context deadline exceeded)"; err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("no %q in %v", want, err)
			}
		}
		b.Restart()
		time.Sleep(time.Second)
		if err := call(); err != nil {
			t.Fatal(err)
		}
		b.Kill()
		call()
		time.Sleep(time.Second) // the dials in the background have ended
		hang.Store(true)
		if err := call(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a dial that hangs: %v", err)
		}
		hang.Store(false)
		time.Sleep(time.Minute) // the dials in the background end
	})
}

// TestOneHookPerClient checks that many runners add one hook to their client, and that
// the client's own hooks still run.
func TestOneHookPerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var own, depth atomic.Int64
		rdb := b.Client(func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				depth.Store(int64(stackOf("dials).DialHook")))
				return dial(ctx, network, addr)
			}
		})
		rdb.AddHook(counting{&own})
		for range 10 {
			r, err := runner.New(rdb, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
		}
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if own.Load() != 1 || depth.Load() != 1 {
			t.Errorf("the client's hook ran %d times, the runners' %d", own.Load(), depth.Load())
		}
	})
}

// counting counts dials.
type counting struct{ n *atomic.Int64 }

func (c counting) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c.n.Add(1)
		return next(ctx, network, addr)
	}
}
func (counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// stackOf returns how often a function is on this goroutine's stack.
func stackOf(function string) int {
	text := make([]byte, 64<<10)
	return strings.Count(string(text[:runtime.Stack(text, false)]), function)
}
