package global_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// checkLimiter checks the calls that must work with every kind of client.
func checkLimiter(t *testing.T, rdb redis.UniversalClient, functions bool) {
	t.Helper()
	l := newLimiter(t, rdb, hourly, global.Config{Name: fmt.Sprint("functions-", functions), Tags: 100, Timeout: 10 * time.Second, Functions: functions})
	for _, key := range []string{"a", "b", "{c}", "d e"} { // in several slots
		if res := allow(t, l, key, 60); !res.Allowed || res.Remaining != 40 {
			t.Errorf("%q: %+v", key, res)
		}
		if res := allow(t, l, key, 60); res.Allowed || res.RetryAfter <= 11*time.Minute || res.RetryAfter > 12*time.Minute {
			t.Errorf("%q: %+v", key, res)
		}
	}
	r, err := runner.New(rdb, 10*time.Second, runner.WithFunctions(functions))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	names, id := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}, fmt.Sprint("functions-", functions)
	beat := wire.Pulse{
		Group: names.Group(id), Directory: names.Groups(), Changed: names.Changed(), Names: names.GroupNames(id), Wanted: names.Wanted(), Paused: names.Paused(),
		ID: id, Process: "p", Expiry: wire.MaxExpiry, TTL: time.Hour,
	}
	if got, err := r.Heartbeat(t.Context(), beat); got.Alive != 1 || err != nil {
		t.Errorf("Heartbeat = %+v, %v", got, err)
	}
}

func TestClients(t *testing.T) {
	server := redistest.New(t)
	for name, client := range map[string]func() redis.UniversalClient{
		"RESP2": func() redis.UniversalClient {
			return server.Client(t, func(o *redis.Options) { o.Protocol = 2 })
		},
		"RESP3": func() redis.UniversalClient {
			return server.Client(t, func(o *redis.Options) { o.Protocol = 3 })
		},
		"ring": func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
		},
		"universal": func() redis.UniversalClient {
			return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := client()
			t.Cleanup(func() { _ = rdb.Close() })
			if err := rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			checkLimiter(t, rdb, false)
		})
	}
}

// TestRingSendsOnce checks that a call is sent once: by default, a Ring repeats a command
// whose reply was lost.
func TestRingSendsOnce(t *testing.T) {
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": proxy.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	l := newLimiter(t, ring, hourly, patientConfig)
	allow(t, l, "k", 1)
	before := proxy.Count("EVALSHA").Forwarded
	proxy.Script(redistest.OnEvery("EVALSHA", redistest.DropReply(redistest.ThenClose)))
	if _, err := l.Allow(t.Context(), "k"); err == nil {
		t.Error("no error for a lost reply")
	}
	if n := proxy.Count("EVALSHA").Forwarded - before; n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// hook records the commands that pass through it.
type hook struct {
	mu    sync.Mutex
	names []string
	value any // of the caller's context
	fail  error
}

type hookKey struct{}

func (h *hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.mu.Lock()
		h.names = append(h.names, cmd.FullName())
		h.value = ctx.Value(hookKey{})
		fail := h.fail
		h.mu.Unlock()
		if fail != nil {
			return fail
		}
		return next(ctx, cmd)
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestHooksRun checks that the hooks of the caller's client run, with the caller's
// context, and that their errors are returned.
func TestHooksRun(t *testing.T) {
	mini := redistest.Mini(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": mini.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, rdb := range map[string]redis.UniversalClient{"client": redistest.Client(t, mini.Addr()), "ring": ring} {
		t.Run(name, func(t *testing.T) {
			mini.FlushAll()
			h := &hook{}
			rdb.AddHook(h)
			l := newLimiter(t, rdb, ten, patientConfig)
			allow(t, l, "k", 1) // loads the script, the first time
			h.names = nil
			if _, err := l.Allow(context.WithValue(t.Context(), hookKey{}, "trace"), "k"); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(h.names, []string{"evalsha"}) || h.value != "trace" {
				t.Errorf("the hook saw %v, context %v", h.names, h.value)
			}
			h.fail = errors.New("the hook says no")
			_, err := l.Allow(t.Context(), "k")
			wantErr(t, err, h.fail)
		})
	}
}

// TestAnswerOfAnotherShape checks that a missing reply is an error: a hook may swallow
// the error of a command.
func TestAnswerOfAnotherShape(t *testing.T) {
	server := redistest.New(t)
	rdb := server.Client(t)
	rdb.AddHook(swallow{})
	l := newLimiter(t, rdb, ten, global.Config{FailOpen: false})
	res, err := l.Allow(t.Context(), "k")
	if res.Allowed || err == nil || !strings.Contains(err.Error(), "unreadable reply") {
		t.Errorf("%+v, %v", res, err)
	}
}

type swallow struct{ redis.Hook }

func (swallow) DialHook(next redis.DialHook) redis.DialHook { return next }
func (swallow) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return nil }
}

func (swallow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
