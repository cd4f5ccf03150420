//go:build unix

package circuit_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/circuit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// startRedis starts a server for this test on a Unix socket, which no other
// process can take. It returns the process, the socket and the directory for
// snapshots.
func startRedis(t *testing.T) (cmd *exec.Cmd, socket, data string) {
	t.Helper()
	bin := redistest.Need(t)
	dir, err := os.MkdirTemp("", "hl") //nolint:usetesting // a socket's path is 108 bytes at most, t.TempDir's are longer
	if err != nil {
		t.Fatal(err)
	}
	socket, data = filepath.Join(dir, "s"), filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(bin, "--port", "0", "--unixsocket", socket, "--dir", data, "--save", "", "--loglevel", "warning")
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("redis-server said:\n%s", out)
		}
	})
	until(t, "the server is up", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return cmd, socket, data
}

// until calls ok every millisecond until it is true, for ten seconds at most.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("gave up waiting until %s", what)
}

// TestClassifyRealRedis checks the replies of a real server in each state in which it
// refuses calls.
func TestClassifyRealRedis(t *testing.T) {
	cmd, socket, data := startRedis(t)
	ctx := t.Context()
	c := client(t, socket)
	do := func(words ...any) {
		t.Helper()
		if err := c.Do(ctx, words...).Err(); err != nil {
			t.Fatalf("%v: %v", words, err)
		}
	}
	check := func(name string, want circuit.Class, prefix string, err error) {
		t.Helper()
		if err == nil || !strings.HasPrefix(err.Error(), prefix) {
			t.Errorf("%s: error %q, want one that begins with %q", name, err, prefix)
			return
		}
		checkClass(t, err, want)
	}
	const sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
	set := redis.NewScript(`return redis.call("SET", KEYS[1], "v")`)
	runSet := func() error { return set.Run(ctx, c, []string{"k"}).Err() }

	check("missing key", circuit.Success, "redis: nil", c.Get(ctx, "nothing").Err())
	check("missing script", circuit.Ignored, "NOSCRIPT ", c.EvalSha(ctx, sha, nil).Err())
	if err := c.FCall(ctx, "nothing", nil).Err(); !strings.Contains(err.Error(), "unknown command") { // Redis 6
		check("missing function", circuit.Ignored, "ERR Function not found", err)
	}
	if err := runSet(); err != nil {
		t.Fatal(err)
	}

	do("CONFIG", "SET", "maxmemory", "1")
	check("out of memory", circuit.Failure, "OOM ", c.Set(ctx, "k", "v", 0).Err())
	check("out of memory in a script", circuit.Failure, "", runSet())
	do("CONFIG", "SET", "maxmemory", "0")

	do("CONFIG", "SET", "min-replicas-to-write", "1")
	check("no replicas", circuit.Failure, "NOREPLICAS ", runSet())
	do("CONFIG", "SET", "min-replicas-to-write", "0")

	do("REPLICAOF", "127.0.0.1", "1")
	check("read only", circuit.Failure, "READONLY ", c.Set(ctx, "k", "v", 0).Err())
	check("read only in a script", circuit.Failure, "", runSet())
	do("CONFIG", "SET", "replica-serve-stale-data", "no")
	check("master down", circuit.Failure, "MASTERDOWN ", c.Get(ctx, "k").Err())
	do("REPLICAOF", "NO", "ONE")

	do("ACL", "SETUSER", "little", "on", ">pw", "~*", "+get")
	little := client(t, socket, func(o *redis.Options) { o.Username, o.Password = "little", "pw" })
	check("no permission", circuit.Failure, "NOPERM ", little.EvalSha(ctx, sha, nil).Err())
	wrong := client(t, socket, func(o *redis.Options) { o.Username, o.Password = "little", "guess" })
	check("wrong password", circuit.Failure, "", wrong.Get(ctx, "k").Err())
	do("CONFIG", "SET", "requirepass", "pw")
	check("no password", circuit.Failure, "NOAUTH ", client(t, socket).Get(ctx, "k").Err())
	do("CONFIG", "SET", "requirepass", "")

	// BUSY: a script that does not end, until it is killed.
	do("CONFIG", "SET", "lua-time-limit", "1")
	ended := make(chan error, 1)
	busy := client(t, socket)
	go func() { ended <- busy.Eval(ctx, `while true do end`, nil).Err() }()
	var err error
	until(t, "Redis is busy", func() bool { err = c.Get(ctx, "nothing").Err(); return err != redis.Nil })
	check("busy", circuit.Failure, "BUSY ", err)
	do("SCRIPT", "KILL")
	check("killed script", circuit.Failure, "", <-ended)

	// MISCONF: the directory for the snapshot is gone.
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	do("CONFIG", "SET", "save", "3600 1")
	do("BGSAVE")
	until(t, "the snapshot has failed", func() bool { err = c.Set(ctx, "k", "v", 0).Err(); return err != nil })
	check("no snapshot", circuit.Failure, "MISCONF ", err)
	check("no snapshot in a script", circuit.Failure, "", runSet())

	do("CONFIG", "SET", "maxclients", "1")
	check("too many clients", circuit.Failure, "", client(t, socket).Get(ctx, "k").Err())

	// Stopped: the kernel accepts connections, the process does not answer.
	signal := func(s os.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	check("stopped", circuit.Failure, "", c.Get(short, "k").Err())
	signal(syscall.SIGCONT)

	signal(syscall.SIGKILL)
	_ = cmd.Wait()
	check("killed", circuit.Failure, "", c.Get(ctx, "k").Err())
}
