package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestServer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	c := s.Client(t)
	if n, err := c.Incr(ctx, "k").Result(); n != 1 || err != nil {
		t.Fatalf("INCR = %d, %v", n, err)
	}
	for _, name := range []string{"save", "appendonly", "dir", "bind"} {
		want := map[string]string{"save": "", "appendonly": "no", "dir": s.dir, "bind": "127.0.0.1"}[name]
		if got := c.ConfigGet(ctx, name).Val()[name]; got != want {
			t.Errorf("CONFIG GET %s = %q, want %q", name, got, want)
		}
	}
	if !s.Running() {
		t.Error("it is not running")
	}
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Errorf("its log:\n%s", s.Log())
	}
}

func TestServerKillAndRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	addr := s.Addr()
	c := s.Client(t, noRetries, func(o *redis.Options) { o.DialerRetries = 1 })
	c.Set(ctx, "k", "v", 0)

	s.Kill()
	s.Kill()
	if s.Running() {
		t.Error("Running after Kill")
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling a killed server: %v", err)
	}
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a killed server answered")
	}
	if err := s.Pause(); err == nil {
		t.Error("Pause of a killed server gave no error")
	}

	for range 2 { // from dead, then from alive
		last := s.proc
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		if s.Addr() != addr || s.proc == last || !last.exited() {
			t.Errorf("Addr %s, was %s; a new process: %t", s.Addr(), addr, s.proc != last)
		}
		c := s.Client(t)
		if err := c.Get(ctx, "k").Err(); err != redis.Nil {
			t.Errorf("a key after the restart: %v", err)
		}
		c.Set(ctx, "k", "v", 0)
	}
}

func TestServerPause(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	c := s.Client(t, impatient)
	connect(t, c)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := c.Incr(ctx, "k").Err(); !isTimeout(err) {
		t.Errorf("INCR on a paused server: %v", err)
	}
	if !s.Running() {
		t.Error("a paused server is still running")
	}
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Errorf("the kernel does not accept a connection to a paused server: %v", err)
	} else {
		conn.Close()
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	// The client gave up the INCR, but it was sent.
	Eventually(t, patience, "the late INCR is executed", func() bool {
		return c.Get(ctx, "k").Val() == "1"
	})
}

func TestServerCloseWhilePaused(t *testing.T) {
	t.Parallel()
	s := New(t)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	process := s.proc.cmd.Process
	s.Close()
	s.Close()
	if err := process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("process %d after Close: %v", process.Pid, err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("directory %s after Close: %v", s.dir, err)
	}
	if err := s.Restart(); err == nil {
		t.Error("Restart after Close gave no error")
	}
}

func TestServerExitsByItself(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Client(t, noRetries).ShutdownNoSave(t.Context())
	Eventually(t, patience, "Running turns false", func() bool { return !s.Running() })
	if err := s.Restart(); err != nil {
		t.Error(err)
	}
}

func TestServerArgs(t *testing.T) {
	t.Parallel()
	s := New(t, WithArgs("--maxmemory", "3mb"), WithArgs("--requirepass", "secret"))
	c := s.Client(t, func(o *redis.Options) { o.Password = "secret" })
	if got := c.ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"]; got != strconv.Itoa(3<<20) {
		t.Errorf("maxmemory = %s", got)
	}
	_, err := Start(WithArgs("--no-such-option", "1"))
	if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("a server that refuses its arguments: %v", err)
	}
}

// TestServerKeepsData checks that the data survives a restart with persistence,
// and that the arguments of one run do not apply to the next.
func TestServerKeepsData(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t, WithArgs("--appendonly", "yes"))
	c := s.Client(t)
	c.Set(ctx, "k", "v", 0)
	if err := s.RestartWith("--maxclients", "77"); err != nil {
		t.Fatal(err)
	}
	if got := c.Get(ctx, "k").Val(); got != "v" {
		t.Errorf("after a restart k is %q", got)
	}
	if got := c.ConfigGet(ctx, "maxclients").Val()["maxclients"]; got != "77" {
		t.Errorf("maxclients is %s", got)
	}
	if found, _ := filepath.Glob(filepath.Join(s.Dir(), "append*")); len(found) == 0 {
		t.Errorf("nothing was written to %s", s.Dir())
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := c.ConfigGet(ctx, "maxclients").Val()["maxclients"]; got == "77" {
		t.Error("an argument of one run outlived it")
	}
}

// TestServerConfig checks WithConfig, whose file the server may rewrite, and
// WithEnv.
func TestServerConfig(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t, WithConfig("timeout 123\n"), WithEnv("REDISTEST=yes"))
	c := s.Client(t)
	if got := c.ConfigGet(ctx, "timeout").Val()["timeout"]; got != "123" {
		t.Errorf("timeout is %q", got)
	}
	if err := c.ConfigRewrite(ctx).Err(); err != nil {
		t.Error(err)
	}
	// redis-server overwrites its environment with its title, so the test cannot
	// read it from the process.
	if env := s.proc.cmd.Environ(); !slices.Contains(env, "REDISTEST=yes") || !slices.Contains(env, "PATH="+os.Getenv("PATH")) {
		t.Errorf("its environment was %q", env)
	}
}

func TestServerPortTaken(t *testing.T) {
	t.Parallel()
	s, other := New(t), New(t)
	// A Redis on that port answers, but it is not the started process.
	if err := s.start(other.Port()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second server on the port: %v", err)
	}
}

// The kernel kills a server with the thread that started it. Threads end: if a
// goroutine ends while locked to its thread, the thread ends too.
func TestServerOutlivesThreads(t *testing.T) {
	t.Parallel()
	s := New(t)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { runtime.LockOSThread() })
	}
	all.Wait()
	if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING: %v\n%s", err, s.Log())
	}
}

func TestServerNoLeak(t *testing.T) {
	noLeak(t)
	s := New(t)
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}

func TestServerNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := Start(); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("Start: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) > 0 {
		t.Errorf("Start left %s behind", left)
	}
	t.Setenv("CI", "")
	if r := record(t, func(tb TB) { New(tb) }); !strings.HasPrefix(r.skip, "SKIPPED: REDIS-SERVER NOT INSTALLED") || r.fatal != "" {
		t.Errorf("without CI: skip %q, fatal %q", r.skip, r.fatal)
	}
	t.Setenv("CI", "true")
	if r := record(t, func(tb TB) { New(tb) }); !strings.Contains(r.fatal, "apt-get install") || r.skip != "" {
		t.Errorf("with CI: skip %q, fatal %q", r.skip, r.fatal)
	}
}

// TestHelperServer is the other half of TestServerDiesWithTestBinary.
func TestHelperServer(t *testing.T) {
	if os.Getenv("REDISTEST_HELPER") == "" {
		t.Skip("run by TestServerDiesWithTestBinary")
	}
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s %s\n", s.Addr(), s.dir)
	<-t.Context().Done() // the parent kills this process before
}
