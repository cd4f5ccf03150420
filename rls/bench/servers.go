package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/rls/internal/server"
)

// Theirs is the service that is compared, by module and version.
const (
	theirModule  = "github.com/envoyproxy/ratelimit"
	theirVersion = "v1.4.1-0.20260122083618-3fb702589d36"
)

// config is the configuration of both services. No call of the loads is denied.
const config = `domain: bench
descriptors:
  - key: hot
    rate_limit: {unit: minute, requests_per_unit: 1000000000}
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 100000}
`

// subject is a server that is measured.
type subject struct {
	name string
	addr string // of its gRPC service
	cmd  *exec.Cmd
	log  string // file with its output
}

func newSubject(dir, name, addr, program string, args ...string) *subject {
	log := filepath.Join(dir, strings.ReplaceAll(name, "/", "_")+".log")
	return &subject{name, addr, exec.Command(program, args...), log}
}

// stop ends the server.
func (s *subject) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// cpu returns the user and system time of the server.
func (s *subject) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name of the program may contain spaces
	var state string
	var user, system, none int64
	_, err = fmt.Sscan(rest, &state, &none, &none, &none, &none, &none, &none, &none, &none, &none, &none, &user, &system)
	const perSecond = 100 // USER_HZ, the same on every Linux that Go runs on
	return time.Duration(user+system) * time.Second / perSecond, err
}

// start starts the server.
func (s *subject) start() error {
	out, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer out.Close()
	s.cmd.Stdout, s.cmd.Stderr = out, out
	return s.cmd.Start()
}

// ports returns free ports of the loopback interface.
func ports(n int) (all []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		all = append(all, port)
	}
	return all, nil
}

// buildTheirs builds envoyproxy/ratelimit from a copy of the module, because it has no release that go install accepts.
func buildTheirs(ctx context.Context, dir, program string) error {
	outside := filepath.Join(dir, "outside") // of this module, whose go.mod does not have it
	if err := os.Mkdir(outside, 0o700); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", theirModule+"@"+theirVersion)
	cmd.Dir = outside
	answer, err := cmd.Output()
	var module struct{ Dir, Error string }
	if decode := json.Unmarshal(answer, &module); decode != nil || module.Dir == "" {
		return fmt.Errorf("download of %s: %w %s", theirModule, errors.Join(err, decode), module.Error)
	}
	source := filepath.Join(dir, "theirs")
	if err := os.CopyFS(source, os.DirFS(module.Dir)); err != nil {
		return err
	}
	return goTool(ctx, source, "build", "-mod=mod", "-o", program, "./src/service_cmd")
}

func goTool(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// serveEmpty is the argument with which this program is the server that decides nothing.
const serveEmpty = "serve-empty"

// nothing admits every call.
type nothing struct {
	pb.UnimplementedRateLimitServiceServer
}

func (nothing) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
}

func empty(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.NumStreamWorkers(server.StreamWorkers)) // so that the difference is the decisions
	pb.RegisterRateLimitServiceServer(s, nothing{})
	return s.Serve(l)
}

// startAll builds and starts the three servers.
func startAll(ctx context.Context, dir, redisAddr string) (all []*subject, err error) {
	runtime := filepath.Join(dir, "runtime", "bench", "config")
	err = os.MkdirAll(runtime, 0o700)
	if err = errors.Join(err, os.WriteFile(filepath.Join(runtime, "bench.yaml"), []byte(config), 0o600)); err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "building both services from source")
	ours, theirs := filepath.Join(dir, "hybridlimit-rls"), filepath.Join(dir, "ratelimit")
	self, err := os.Executable()
	free, err2 := ports(6)
	if err := errors.Join(err, err2,
		goTool(ctx, ".", "build", "-o", ours, "github.com/hybridlimit/hybridlimit/rls/cmd/hybridlimit-rls"),
		buildTheirs(ctx, dir, theirs)); err != nil {
		return nil, err
	}
	host := "127.0.0.1:"
	all = []*subject{
		newSubject(dir, emptyName, host+free[0], self, serveEmpty, host+free[0]),
		newSubject(dir, theirName, host+free[1], theirs),
		newSubject(dir, ourName, host+free[4], ours, "-grpc", host+free[4], "-http", host+free[5],
			"-redis", "redis://"+redisAddr, "-config", runtime),
	}
	all[1].cmd.Env = append(
		os.Environ(), "GRPC_HOST=127.0.0.1", "HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT="+free[1], "PORT="+free[2], "DEBUG_PORT="+free[3],
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redisAddr, "USE_STATSD=false", "LOG_LEVEL=error",
		"RUNTIME_ROOT="+filepath.Join(dir, "runtime"), "RUNTIME_SUBDIRECTORY=bench", "RUNTIME_WATCH_ROOT=false",
	)
	for i, s := range all {
		if err := s.start(); err != nil {
			for _, started := range all[:i] {
				started.stop()
			}
			return nil, err
		}
	}
	return all, nil
}

// The names of the servers.
const (
	emptyName = "a server that decides nothing"
	theirName = "envoyproxy/ratelimit"
	ourName   = "hybridlimit-rls"
)
