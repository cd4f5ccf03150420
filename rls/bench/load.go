package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := time.Now().Add(lasts)
	each := make([][]time.Duration, callers)
	_ = benchkit.Spread(callers, func(i int) error { // the error is the cause of the cancellation
		client := pb.NewRateLimitServiceClient(c.conns[i%len(c.conns)])
		for ctx.Err() == nil {
			begin := time.Now()
			if !begin.Before(end) {
				break
			}
			answer, err := client.ShouldRateLimit(ctx, l.request(c.next.Add(1)))
			each[i] = append(each[i], time.Since(begin))
			if err == nil && answer.OverallCode != pb.RateLimitResponse_OK {
				err = fmt.Errorf("a call was denied: %v", answer)
			}
			if err != nil {
				cancel(err)
			}
		}
		return nil
	})
	return slices.Concat(each...), context.Cause(ctx)
}

// measure starts everything and measures all servers in turns.
func measure(ctx context.Context, dir string, size scale) (*results, error) {
	srv, err := benchkit.StartRedis()
	if err != nil {
		return nil, err
	}
	defer srv.Close()
	r := &results{size: size, machine: describe()}
	subjects, err := startAll(ctx, dir, srv.Addr)
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
			if err := benchkit.Turns(round, round+1, len(subjects), func(_, i int) error {
				s := subjects[i]
				f, err := one(ctx, benchkit.Meter{Redis: srv, Process: s.cpu}, callers[i], l, size)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", s.name, l.name, err)
				}
				r.Add(table, l.name, s.name, f)
				fmt.Fprintf(os.Stderr, "round %d: %s: %s: %.0f calls/s, p50 %.2f ms, p99 %.2f ms, server %.1f µs, Redis %.2f µs\n",
					round+1, l.name, s.name, f["perSecond"], f["p50"], f["p99"], f["process"], f["cpu"])
				return nil
			}); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// one measures one server under one load. Other servers are idle meanwhile. The figures are the calls a second, p50 and
// p99 in ms, and the CPU time of a call in µs: of the server, and of Redis.
func one(ctx context.Context, m benchkit.Meter, c *caller, l load, size scale) (benchkit.Figures, error) {
	if _, err := c.calls(ctx, l, size.callers, size.warm); err != nil {
		return nil, err
	}
	var took []time.Duration
	s, err := m.Spent(ctx, func() (err error) {
		took, err = c.calls(ctx, l, size.callers, size.lasts)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	n := float64(len(took))
	at := func(part float64) float64 { return took[min(int(part*n), len(took)-1)].Seconds() * 1e3 }
	f := s.Per(n)
	f["perSecond"], f["p50"], f["p99"] = n/s.Wall.Seconds(), at(0.5), at(0.99)
	return f, nil
}
