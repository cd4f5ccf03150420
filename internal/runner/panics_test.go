package runner_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// panicking is a hook that panics at one command, as go-redis does when it trusts a wrong
// length.
type panicking struct{ at string }

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == h.at {
			_ = make([]any, len(h.at)-100)
		}
		return next(ctx, cmd)
	}
}

func (panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A panic in a call to Redis becomes the error of that call, wherever it happens. The log
// gets one line with the place. The Runner can still be closed.
func TestAPanicIsAnErrorOfTheCall(t *testing.T) {
	mini := redistest.Mini(t)
	addr := redistest.Odd(t, func([]string) string { return "-ERR Function not found\r\n" })
	for name, tc := range map[string]struct {
		rdb       redis.UniversalClient
		at        string
		functions bool
	}{
		"client":           {redistest.Client(t, mini.Addr()), "evalsha", false},
		"ring":             {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": mini.Addr()}}), "evalsha", false},
		"client, function": {redistest.Client(t, addr), "function", true},
		"ring, function":   {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": addr}}), "function", true},
	} {
		t.Run(name, func(t *testing.T) {
			defer tc.rdb.Close()
			if ring, ok := tc.rdb.(*redis.Ring); ok {
				_ = ring.ForEachShard(t.Context(), func(_ context.Context, c *redis.Client) error { c.AddHook(panicking{tc.at}); return nil })
			} else {
				tc.rdb.AddHook(panicking{tc.at})
			}
			var log testenv.Log
			r, err := runner.New(tc.rdb, 10*time.Second, runner.WithFunctions(tc.functions), runner.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				_, err = r.Heartbeat(t.Context(), pulse("p", time.Second, false))
				if !errors.Is(err, wire.ErrReply) || !strings.Contains(err.Error(), "panicked: runtime error: makeslice: len out of range") {
					t.Errorf("%v", err)
				}
			}
			r.Close()
			if got := log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "panicking") || !strings.Contains(got, "makeslice") {
				t.Errorf("logged %q", got)
			}
		})
	}
}
