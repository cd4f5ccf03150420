// Three-replicas runs three replicas of hybridlimit-rls on one Redis, sends load to all of them, kills Redis, starts a
// new one, and prints the calls that were admitted in each second. It needs Go, and uses redis-server if there is one.
//
//	cd rls && go run ./examples/three-replicas
//
// The rule admits 300 calls a second in all. The load is 900 calls a second. Without Redis each replica admits its
// share, which is a third.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9/logging"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hybridlimit/hybridlimit/rls/internal/server"
)

const (
	replicas = 3
	limit    = 300 // calls a second, of all replicas together
	load     = 300 // calls a second, to each replica
	rules    = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 300}
`
)

func main() {
	logging.Disable() // go-redis writes a line for each dial that fails
	seconds := flag.Int("seconds", 5, "length of each of the three phases")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	switch {
	case flag.NArg() == 2 && flag.Arg(0) == "redis":
		err = serveRedis(ctx, flag.Arg(1))
	case flag.NArg() == 3 && flag.Arg(0) == "replica":
		err = serveReplica(ctx, flag.Arg(1), flag.Arg(2))
	default:
		err = run(ctx, *seconds, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1) //nolint:gocritic // exitAfterDefer: stop was called
	}
}

// serveRedis is the process of a Redis, where redis-server is missing.
func serveRedis(ctx context.Context, addr string) error {
	mini := miniredis.NewMiniRedis()
	if err := mini.StartAddr(addr); err != nil {
		return err
	}
	<-ctx.Done()
	mini.Close()
	return nil
}

// serveReplica is the process of one replica. addrs is the address of Redis and its own.
func serveReplica(ctx context.Context, addrs, config string) error {
	redis, grpc, _ := strings.Cut(addrs, ",")
	s, err := server.ParseFlags([]string{"-config", config, "-redis", redis, "-grpc", grpc, "-http", "", "-replicas", fmt.Sprint(replicas)}, func(string) string { return "" }, os.Stderr)
	if err != nil {
		return err
	}
	return server.Run(ctx, s, io.Discard, nil)
}

// fleet is the processes of the run.
type fleet struct {
	redisAddr string
	redis     *exec.Cmd
	replicas  []*exec.Cmd
}

// run starts all, sends load, and prints the result.
func run(ctx context.Context, seconds int, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "three-replicas")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(config, []byte(rules), 0o600); err != nil {
		return err
	}
	addrs, err := freeAddresses(1 + replicas)
	if err != nil {
		return err
	}
	f := &fleet{redisAddr: addrs[0]}
	defer f.end()
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Fprintln(out, "There is no redis-server: a Redis written in Go stands in for it.")
	}
	if err := f.startRedis(dir); err != nil {
		return err
	}
	clients := make([]pb.RateLimitServiceClient, replicas)
	for i, addr := range addrs[1:] {
		cmd := exec.Command(os.Args[0], "replica", f.redisAddr+","+addr, config)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		f.replicas = append(f.replicas, cmd)
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := ready(ctx, conn); err != nil {
			return err
		}
		clients[i] = pb.NewRateLimitServiceClient(conn)
	}
	fmt.Fprintf(out, "%d replicas, a limit of %d calls a second in all, %d calls a second sent.\n\nsecond  Redis      admitted  by replica\n", replicas, limit, replicas*load)
	highest, steady := 0, 0
	for _, phase := range []struct {
		name  string
		begin func() error
	}{
		{"up", func() error { return nil }},
		{"killed", f.killRedis},
		{"new, empty", func() error { return f.startRedis(dir) }},
	} {
		if err := phase.begin(); err != nil {
			return err
		}
		for i := range seconds {
			admitted, each, windows, err := second(ctx, clients)
			if err != nil {
				return err
			}
			late := ""
			if windows > 1 {
				late = fmt.Sprintf("  late: took %d seconds", windows)
			}
			if highest = max(highest, admitted); i > 0 {
				steady = max(steady, admitted)
			}
			fmt.Fprintf(out, "%s  %-10s %8d  %v%s\n", time.Now().Format("05.0  "), phase.name, admitted, each, late)
		}
	}
	fmt.Fprintf(out, `
The highest number admitted in a second is %d, and %d without the first second of each
phase. In the second of the loss the replicas spend the units that they have leased, and
their shares too. No call failed.
`, highest, steady)
	return nil
}

// second sends the load of one second of the clock. On a busy machine the calls take more seconds, which are windows of
// the limit.
func second(ctx context.Context, clients []pb.RateLimitServiceClient) (admitted int, each []int, windows int, err error) {
	begin := time.Now().Truncate(time.Second).Add(time.Second)
	each = make([]int, len(clients))
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, client := range clients {
		wg.Go(func() {
			for n := range load {
				at := begin.Add(time.Duration(n) * 900 * time.Millisecond / load) // 100 ms are left for late calls
				select {
				case <-time.After(time.Until(at)):
				case <-ctx.Done():
					errs[i] = ctx.Err()
					return
				}
				res, err := client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{{
					Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}},
				}}})
				if err != nil {
					errs[i] = err
					return
				}
				if res.GetOverallCode() == pb.RateLimitResponse_OK {
					each[i]++
				}
			}
		})
	}
	wg.Wait()
	for i := range clients {
		if errs[i] != nil {
			return 0, nil, 0, errs[i]
		}
		admitted += each[i]
	}
	return admitted, each, 1 + int(time.Since(begin)/time.Second), nil
}

// ready waits until a replica answers health checks.
func ready(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		res, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		switch {
		case err != nil:
			return fmt.Errorf("a replica does not answer: %w", err)
		case res.GetStatus() == healthpb.HealthCheckResponse_SERVING:
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// startRedis starts an empty Redis and waits until it listens.
func (f *fleet) startRedis(dir string) error {
	host, port, err := net.SplitHostPort(f.redisAddr)
	if err != nil {
		return err
	}
	if path, err := exec.LookPath("redis-server"); err == nil {
		f.redis = exec.Command(path, "--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", dir)
	} else {
		f.redis = exec.Command(os.Args[0], "redis", f.redisAddr)
	}
	if err := f.redis.Start(); err != nil {
		return err
	}
	for range 200 {
		conn, err := net.Dial("tcp", f.redisAddr)
		if err == nil {
			return conn.Close()
		}
		time.Sleep(25 * time.Millisecond)
	}
	return fmt.Errorf("the Redis on %s does not listen", f.redisAddr)
}

// killRedis ends Redis as a crash does.
func (f *fleet) killRedis() error {
	cmd := f.redis
	f.redis = nil
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	cmd.Wait()
	return nil
}

// end ends all processes.
func (f *fleet) end() {
	for _, cmd := range f.replicas {
		cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, cmd := range f.replicas {
		late := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		late.Stop()
	}
	if f.redis != nil {
		f.killRedis()
	}
}

// freeAddresses returns addresses on which nobody listens.
func freeAddresses(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
