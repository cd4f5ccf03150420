package global_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/test/conformance"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// withAndWithout has both ways to run the library. The value is Config.Functions.
var withAndWithout = map[string]bool{"scripts": false, "functions": true}

// functionConfig is patientConfig with functions.
var functionConfig = global.Config{Timeout: 30 * time.Second, Functions: true}

// functionServer starts a server that has functions.
func functionServer(t *testing.T, opts ...redistest.Option) *redistest.Server {
	t.Helper()
	server := redistest.New(t, opts...)
	redistest.NeedFunctions(t, server.Client(t))
	return server
}

func TestConformanceWithFunctions(t *testing.T) {
	t.Parallel()
	srv := functionServer(t)
	var prefixes atomic.Int64
	conformance.Run(t, conformance.Spec{
		Bucket: conformance.Window(hybridlimit.SlidingWindow),
		New: func(tb testing.TB, limit hybridlimit.Limit) hybridlimit.Limiter {
			return newLimiter(tb, srv.Client(tb), limit, global.Config{
				Prefix: fmt.Sprint("p", prefixes.Add(1)), Timeout: 30 * time.Second, Functions: true,
			})
		},
		Close: closeGlobal, Policy: "api", Exact: true,
	})
	calls := redistest.Calls(t, srv.Client(t))
	if calls["fcall"] == 0 || calls["evalsha"]+calls["eval"] > 0 || calls["function|load"] != 1 {
		t.Errorf("FCALL %d, FUNCTION LOAD %d, EVALSHA %d, EVAL %d",
			calls["fcall"], calls["function|load"], calls["evalsha"], calls["eval"])
	}
}

// TestNoFunctions checks the error of a Redis without functions: miniredis, and a Redis
// whose FCALL is renamed, as a Redis before 7.
func TestNoFunctions(t *testing.T) {
	mini := redistest.Client(t, redistest.Mini(t).Addr())
	old := redistest.New(t, redistest.WithArgs("--rename-command", "FCALL", "", "--rename-command", "FUNCTION", "")).Client(t)
	for name, rdb := range map[string]*redis.Client{"miniredis": mini, "redis": old} {
		l := newLimiter(t, rdb, hourly, functionConfig)
		_, err := l.Allow(t.Context(), "k")
		wantErr(t, err, hybridlimit.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "Config.Functions needs Redis 7") || circuit.Classify(err) != circuit.Failure {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoRightToLoad checks a Redis user without the right to load the library. If the
// library is missing, the error names the missing right. If it is loaded, calls work.
func TestNoRightToLoad(t *testing.T) {
	server := functionServer(t)
	direct := server.Client(t)
	redistest.Do(t, direct, "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-function")
	l := newLimiter(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" }), hourly, functionConfig)
	_, err := l.Allow(t.Context(), "k")
	wantErr(t, err, hybridlimit.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "FUNCTION LOAD failed, and Config.Functions needs it: NOPERM") || circuit.Classify(err) != circuit.Failure {
		t.Error(err)
	}
	if n := redistest.Calls(t, direct)["eval"]; n != 0 {
		t.Errorf("%d calls ran as scripts", n)
	}
	if err := direct.FunctionLoadReplace(t.Context(), lua.Library.Source).Err(); err != nil {
		t.Fatal(err)
	}
	if res := allow(t, l, "k", 1); res.Remaining != 99 {
		t.Errorf("%+v", res)
	}
}

// TestUnknownFunction checks that a missing library is loaded again, within one decision
// of three commands.
func TestUnknownFunction(t *testing.T) {
	server := functionServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	direct := server.Client(t)
	l := newLimiter(t, proxy.Client(t), hourly, functionConfig)
	for i := range int64(3) {
		before := proxy.Counts()
		for j := range int64(2) {
			if res := allow(t, l, "k", 1); res.Remaining != 100-2*i-j-1 {
				t.Errorf("%+v", res)
			}
		}
		after := proxy.Counts()
		if f, c := after["FUNCTION"].Seen-before["FUNCTION"].Seen, after["FCALL"].Seen-before["FCALL"].Seen; f != 1 || c != 3 {
			t.Errorf("%d FUNCTION and %d FCALL", f, c)
		}
		if err := direct.FunctionFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n := proxy.Count("EVAL").Seen + proxy.Count("EVALSHA").Seen; n != 0 {
		t.Errorf("%d calls ran as scripts", n)
	}
}

// miniFunctions gives the bubble's server the commands of functions: FUNCTION LOAD, and FCALL,
// which runs the script of the same effect. forget removes the library.
func miniFunctions(t *testing.T, s *scene) (forget func()) {
	t.Helper()
	var loaded atomic.Bool
	srv := s.bubble.Mini.Server()
	err := errors.Join(
		srv.Register("FUNCTION", func(c *server.Peer, _ string, _ []string) {
			loaded.Store(true)
			c.WriteBulk(lua.Library.Name)
		}),
		srv.Register("FCALL", func(c *server.Peer, _ string, args []string) {
			switch {
			case !loaded.Load():
				c.WriteError("ERR Function not found")
			case args[0] != lua.Library.Batch:
				c.WriteError("ERR another function: " + args[0])
			default:
				srv.Dispatch(c, append([]string{"EVAL", lua.Batch.Source}, args[1:]...))
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	return func() { loaded.Store(false) }
}

// inFunctionBubble is inBubble with functions.
func inFunctionBubble(t *testing.T, timeout time.Duration, opts func(*redis.Options), f func(t *testing.T, s *scene, forget func())) {
	t.Helper()
	cfg := global.Config{Timeout: timeout, Functions: true}
	inBubble(t, hourly, cfg, opts, func(t *testing.T, s *scene) { f(t, s, miniFunctions(t, s)) })
}

// TestLostReplyToAFunction checks that neither a call nor a load is sent again if its
// reply is lost. By default go-redis would repeat it.
func TestLostReplyToAFunction(t *testing.T) {
	short := func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond }
	for _, tc := range []struct {
		command string
		verdict redistest.Verdict
		spent   int64
		cause   func(error) bool
		took    time.Duration
	}{
		{"FCALL", redistest.DropReply(redistest.ThenClose), 3, isEOF, 0},
		{"FCALL", redistest.DropRequest(redistest.ThenClose), 0, isEOF, 0},
		{"FCALL", redistest.DropReply(redistest.ThenHang), 3, isTimeout, 100 * time.Millisecond},
		{"FUNCTION", redistest.DropReply(redistest.ThenClose), 0, isEOF, 0},
		{"FUNCTION", redistest.DropReply(redistest.ThenHang), 0, isTimeout, 100 * time.Millisecond},
	} {
		inFunctionBubble(t, time.Minute, short, func(t *testing.T, s *scene, forget func()) {
			allow(t, s.Limiter, "k", 1)
			if tc.command == "FUNCTION" {
				forget()
			}
			before := s.link.Count(tc.command).Seen
			s.link.Script(redistest.OnEvery(tc.command, tc.verdict))
			s.began = time.Now()
			res, err := s.AllowN(t.Context(), "k", 3)
			s.took(tc.took)
			s.link.Script(nil)
			wantErr(t, err, hybridlimit.ErrUnavailable)
			if !tc.cause(err) || res.Allowed {
				t.Errorf("%s: %+v, %v", tc.command, res, err)
			}
			if n := s.link.Count(tc.command).Seen - before; n != 1 {
				t.Errorf("%s was sent %d times", tc.command, n)
			}
			time.Sleep(2 * time.Second) // a load that failed is repeated a second later
			if got := remaining(t, s.Limiter, "k"); got != 99-tc.spent {
				t.Errorf("%s: %d units remain, want %d", tc.command, got, 99-tc.spent)
			}
		})
	}
}

// TestLostReplyOfARealFunction checks the same on a real Redis, whose connection closes.
func TestLostReplyOfARealFunction(t *testing.T) {
	server := functionServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	l := newLimiter(t, proxy.Client(t), hourly, functionConfig)
	for i, tc := range []struct {
		command string
		verdict redistest.Verdict
		spent   int64
	}{
		{"FCALL", redistest.DropReply(redistest.ThenClose), 3},
		{"FCALL", redistest.DropRequest(redistest.ThenClose), 0},
		{"FUNCTION", redistest.DropReply(redistest.ThenClose), 0},
	} {
		key := fmt.Sprint("k", i)
		allow(t, l, key, 1)
		if tc.command == "FUNCTION" {
			redistest.Do(t, server.Client(t), "FUNCTION", "FLUSH")
		}
		before := proxy.Count(tc.command).Seen
		proxy.Script(redistest.OnEvery(tc.command, tc.verdict))
		res, err := l.AllowN(t.Context(), key, 3)
		proxy.Script(nil)
		wantErr(t, err, hybridlimit.ErrUnavailable, io.EOF)
		if n := proxy.Count(tc.command).Seen - before; n != 1 || res.Allowed {
			t.Errorf("%s was sent %d times: %+v", tc.command, n, res)
		}
		if tc.command == "FUNCTION" { // Redis has executed the load, so that the next call finds the library
			continue
		}
		if got := remaining(t, l, key); got != 99-tc.spent {
			t.Errorf("%s: %d units remain, want %d", tc.command, got, 99-tc.spent)
		}
	}
	if got := remaining(t, l, "k2"); got != 99 {
		t.Errorf("%d units remain after a lost load, want 99", got)
	}
}

// TestLoadKeepsTheDeadline checks that a caller returns at its deadline while the load of
// the library hangs.
func TestLoadKeepsTheDeadline(t *testing.T) {
	inFunctionBubble(t, 500*time.Millisecond, defaults, func(t *testing.T, s *scene, _ func()) {
		s.link.Script(redistest.OnEvery("FUNCTION", redistest.DropReply(redistest.ThenHang)))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		s.began = time.Now()
		if _, err := s.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		s.took(50 * time.Millisecond)
		if n := s.link.Count("FUNCTION").Seen; n != 1 {
			t.Errorf("%d loads", n)
		}
		s.link.Script(nil)
	})
}

// TestFunctionsBesideScripts checks that a process with functions and a process with
// scripts share one limit.
func TestFunctionsBesideScripts(t *testing.T) {
	server := functionServer(t)
	with := newLimiter(t, server.Client(t), hourly, functionConfig)
	without := newLimiter(t, server.Client(t), hourly, patientConfig)
	for i := range int64(10) {
		l := []*global.Limiter{with, without}[i%2]
		if res := allow(t, l, "k", 1); res.Remaining != 99-i {
			t.Errorf("call %d: %+v", i, res)
		}
	}
}
