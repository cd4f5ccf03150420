package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNotInstalled is returned by [Start] when there is no redis-server in PATH.
var ErrNotInstalled = errors.New("redistest: redis-server is not installed")

// startPatience is generous: a server answers within 20 ms on an idle machine. The whole time passes only if the start
// fails.
const startPatience = 15 * time.Second

// Server is a redis-server process on a loopback port. It has its own directory and no persistence, so that a restart
// is empty. Its methods may be called from any goroutine. Methods that change the process run one at a time. A Server
// cannot be used inside a synctest bubble: the bubble's clock does not move while a goroutine waits for a socket.
type Server struct {
	ports ports
	dir   string
	args  []string // from WithArgs
	env   []string // from WithEnv
	conf  string   // from WithConfig
	bus   bool     // from WithBus

	mu     sync.Mutex
	proc   *process // the last process that was started, running or not
	closed bool
}

// Option is an option of a server.
type Option func(*Server)

// WithArgs appends arguments to redis-server's command line, for example WithArgs("--maxmemory", "2mb"). A later
// argument overrides an earlier one. The arguments apply to restarts as well.
func WithArgs(args ...string) Option {
	return func(s *Server) { s.args = append(s.args, args...) }
}

// WithBus is for a node of a cluster: the port of the cluster's bus, [BusOffset] above the other one, is free as well,
// and is the server's own until [Server.Close].
func WithBus() Option {
	return func(s *Server) { s.bus = true }
}

// WithEnv adds to the environment of the process, as "name=value".
func WithEnv(env ...string) Option {
	return func(s *Server) { s.env = append(s.env, env...) }
}

// WithConfig gives the server its own configuration file, which it may rewrite, as a Sentinel must. The arguments of
// the command line override the file.
func WithConfig(text string) Option {
	return func(s *Server) { s.conf = text }
}

// Start starts a redis-server and waits until it answers. The caller must Close it. Tests use [New].
func Start(opts ...Option) (*Server, error) {
	var s Server
	for _, opt := range opts {
		opt(&s)
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "redistest-"); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	if s.conf != "" {
		err = os.WriteFile(s.confPath(), []byte(s.conf), 0o600)
	}
	if err == nil {
		s.ports, err = onPorts(s.bus, func(port int) error { return s.start(port) })
	}
	if err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	return &s, nil
}

// New is [Start] for a test, with Close when the test ends. Without a redis-server it behaves like [Need].
func New(tb TB, opts ...Option) *Server {
	tb.Helper()
	if Need(tb) == "" {
		return nil
	}
	s, err := Start(opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Need returns the path of redis-server, for tests that start one themselves. Without redis-server the test is skipped
// with a clear message. If CI is set in the environment, the test fails instead, so that a build server cannot pass
// without these tests.
func Need(tb TB) string {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	switch {
	case err == nil:
	case os.Getenv("CI") == "":
		tb.Skipf("SKIPPED: REDIS-SERVER NOT INSTALLED: THIS TEST NEEDS A REAL REDIS. %s, then run make test", howToInstall)
	default:
		tb.Fatalf("%v, and CI is set: %s", ErrNotInstalled, howToInstall)
	}
	return path
}

const howToInstall = "Install it (apt-get install redis-server, or brew install redis)"

// Addr returns "127.0.0.1:port". The port is the server's own until [Server.Close], also while no process runs.
func (s *Server) Addr() string {
	return loopback(s.ports.main.number)
}

// Port returns the port of Addr.
func (s *Server) Port() int { return s.ports.main.number }

// Client returns a client of the server; see [Client].
func (s *Server) Client(tb TB, opts ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return Client(tb, s.Addr(), opts...)
}

// Dir returns the server's directory. The server writes data files to it only if its arguments turn persistence on.
// Close removes it.
func (s *Server) Dir() string { return s.dir }

// Running reports whether the process exists, stopped or not. It also becomes false if the server exits without Kill or
// Close.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.proc.exited()
}

// Log returns the server's log, over all restarts, for the message of a failing test. It is empty after Close.
func (s *Server) Log() string {
	b, _ := os.ReadFile(s.logPath())
	return string(b)
}

// Kill ends the process with SIGKILL, also a stopped one, and returns when it has exited. New connections are then
// refused, and existing ones are reset. Kill does nothing if the server is not running.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.kill()
}

// Restart kills the server if it runs, starts it on the same port, and waits until it answers. The server is then
// empty, unless its arguments turn persistence on.
func (s *Server) Restart() error { return s.RestartWith() }

// RestartWith is [Server.Restart] with more arguments, for this run only.
func (s *Server) RestartWith(args ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("redistest: Restart after Close")
	}
	s.proc.kill()
	return onHeld(func() error { return s.start(s.ports.main.number, args...) })
}

// Pause stops the process with SIGSTOP, and returns when it has stopped. The kernel still accepts connections and
// bytes, but the server gives no answer. On Windows, which has no such signal, Pause returns an error.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.signal(stopSignal)
	if err == nil {
		// When kill returns, the signal is only posted, and the server may answer one more request.
		poll(startPatience, func() bool { return s.proc.exited() || isStopped(s.proc.cmd.Process.Pid) })
	}
	return err
}

// Resume continues a paused process with SIGCONT. The server then executes the requests that arrived meanwhile. On a
// running process Resume does nothing.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal(continueSignal)
}

// Close kills the process in any state and removes its directory. It is idempotent.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.proc.kill()
	s.ports.release()
	os.RemoveAll(s.dir)
}

func (s *Server) signal(sig os.Signal) error {
	if s.proc.exited() {
		return fmt.Errorf("redistest: %v: the server is not running", sig)
	}
	return s.proc.cmd.Process.Signal(sig)
}

// start starts a process and waits until it answers. The error wraps EADDRINUSE if another process has the port.
func (s *Server) start(port int, more ...string) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return ErrNotInstalled
	}
	var args []string
	if s.conf != "" {
		args = append(args, s.confPath())
	}
	args = append(args, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	cmd := exec.Command(path, slices.Concat(args, s.args, more)...)
	cmd.Env = append(os.Environ(), s.env...)
	proc, err := startProcess(cmd, s.logPath())
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	if err := awaitReady(loopback(port), proc, startPatience); err != nil {
		proc.kill()
		return fmt.Errorf("%w; its log ends:\n%s", err, proc.logTail())
	}
	s.proc = proc
	return nil
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "redis.log") }

func (s *Server) confPath() string { return filepath.Join(s.dir, "redis.conf") }
