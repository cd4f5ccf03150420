package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// load is the descriptors of the calls.
type load struct {
	name   string
	values int // number of descriptors; the calls go round them
	key    string
}

var loads = []load{
	{name: "one hot descriptor", values: 1, key: "hot"},
	{name: "50 000 descriptors", values: 50_000, key: "user"},
}

func (l load) request(n uint64) *pb.RateLimitRequest {
	value := strconv.FormatUint(n%uint64(l.values), 10)
	return &pb.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: l.key, Value: value}},
	}}}
}

// figures are those of one server in one round.
type figures struct {
	perSecond float64
	p50, p99  float64 // ms
	server    float64 // µs of its CPU a call
	redis     float64 // µs of Redis's CPU a call
}

// caller calls one server.
type caller struct {
	conns []*grpc.ClientConn
	next  atomic.Uint64 // number of the next call
}

func dial(ctx context.Context, s *subject, conns int) (*caller, error) {
	c := &caller{}
	for range conns {
		conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// A server that has just started may not have its configuration or its Redis yet.
	for {
		_, err := pb.NewRateLimitServiceClient(c.conns[0]).ShouldRateLimit(ctx, loads[0].request(0))
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			text, _ := os.ReadFile(s.log)
			return nil, fmt.Errorf("%s does not answer: %w\n%s", s.name, err, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// calls calls the server for a time. It returns the durations of all calls.
func (c *caller) calls(ctx context.Context, l load, callers int, lasts time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(lasts)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	for i := range callers {
		client := pb.NewRateLimitServiceClient(c.conns[i%len(c.conns)])
		wg.Go(func() {
			var took []time.Duration
			var err error
			for err == nil {
				begin := time.Now()
				if !begin.Before(end) || ctx.Err() != nil {
					break
				}
				var answer *pb.RateLimitResponse
				answer, err = client.ShouldRateLimit(ctx, l.request(c.next.Add(1)))
				took = append(took, time.Since(begin))
				if err == nil && answer.OverallCode != pb.RateLimitResponse_OK {
					err = fmt.Errorf("a call was denied: %v", answer)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			if err != nil && failed == nil {
				failed = err
				cancel()
			}
		})
	}
	wg.Wait()
	return all, failed
}

// measure starts everything and measures all servers in turns.
func measure(ctx context.Context, dir string, size scale) (*results, error) {
	srv, err := redistest.Start()
	if err != nil {
		return nil, err
	}
	defer srv.Close()
	admin := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer admin.Close()
	r := &results{size: size, machine: describe()}
	subjects, err := startAll(ctx, dir, srv.Addr())
	if err != nil {
		return nil, err
	}
	callers := make([]*caller, len(subjects))
	for i, s := range subjects {
		defer s.stop()
		if callers[i], err = dial(ctx, s, size.conns); err != nil {
			return nil, err
		}
	}
	for round := range size.rounds {
		for _, l := range loads {
			for i := range subjects {
				i = (i + round) % len(subjects) // another one begins in each round
				f, err := one(ctx, admin, subjects[i], callers[i], l, size)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", subjects[i].name, l.name, err)
				}
				r.add(l, subjects[i].name, f)
				fmt.Fprintf(os.Stderr, "round %d: %s: %s: %.0f calls/s, p50 %.2f ms, p99 %.2f ms, server %.1f µs, Redis %.2f µs\n",
					round+1, l.name, subjects[i].name, f.perSecond, f.p50, f.p99, f.server, f.redis)
			}
		}
	}
	return r, nil
}

// one measures one server under one load. Other servers are idle meanwhile.
func one(ctx context.Context, admin *redis.Client, s *subject, c *caller, l load, size scale) (f figures, err error) {
	if _, err := c.calls(ctx, l, size.callers, size.warm); err != nil {
		return f, err
	}
	redisBefore, err := redisCPU(ctx, admin)
	if err != nil {
		return f, err
	}
	before, err := s.cpu()
	if err != nil {
		return f, err
	}
	begin := time.Now()
	took, err := c.calls(ctx, l, size.callers, size.lasts)
	lasted := time.Since(begin)
	if err != nil {
		return f, err
	}
	after, err := s.cpu()
	if err != nil {
		return f, err
	}
	redisAfter, err := redisCPU(ctx, admin)
	if err != nil {
		return f, err
	}
	slices.Sort(took)
	n := float64(len(took))
	at := func(part float64) float64 { return took[min(int(part*n), len(took)-1)].Seconds() * 1e3 }
	return figures{
		perSecond: n / lasted.Seconds(), p50: at(0.5), p99: at(0.99),
		server: float64((after - before).Microseconds()) / n, redis: float64((redisAfter - redisBefore).Microseconds()) / n,
	}, nil
}

// redisCPU returns the user and system time of the redis-server.
func redisCPU(ctx context.Context, admin *redis.Client) (sum time.Duration, err error) {
	info, err := admin.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	return sum, nil
}
