package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// TestCalls calls a server that decides nothing.
func TestCalls(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(s, nothing{})
	go s.Serve(l) //nolint:errcheck // it ends with Stop
	defer s.Stop()
	c, err := dial(t.Context(), &subject{name: "server", addr: l.Addr().String()}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, load := range loads {
		took, err := c.calls(t.Context(), load, 4, 50*time.Millisecond)
		if err != nil || len(took) < 4 {
			t.Errorf("%s: %d calls, %v", load.name, len(took), err)
		}
	}
	s.Stop()
	if _, err := c.calls(t.Context(), loads[0], 4, time.Minute); err == nil {
		t.Error("calls of a server that has ended have no error")
	}
}

// TestCallsOfAServerThatDenies checks that a denial is an error: a load below the limit has none.
func TestCallsOfAServerThatDenies(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(s, denying{})
	go s.Serve(l) //nolint:errcheck // it ends with Stop
	defer s.Stop()
	c, err := dial(t.Context(), &subject{name: "server", addr: l.Addr().String()}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.calls(t.Context(), loads[0], 4, time.Minute); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("error %v", err)
	}
}

type denying struct {
	pb.UnimplementedRateLimitServiceServer
}

func (denying) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OVER_LIMIT}, nil
}

// TestGoals compares figures with the goals: first each goal is just reached, then each is missed.
func TestGoals(t *testing.T) {
	of := func(ours figures) *results {
		r := &results{size: scale{rounds: 3}}
		for _, l := range loads {
			for range 3 {
				r.add(l, emptyName, figures{server: 20, p99: 1})
				r.add(l, theirName, figures{server: 70, p99: 8, redis: 10})
			}
			mine := ours
			if l.values > 1 {
				mine.redis *= 100
			}
			r.add(l, ourName, figures{server: 1000, p99: 1000, redis: 1000}) // one bad round of three
			r.add(l, ourName, mine)
			r.add(l, ourName, mine)
		}
		return r
	}
	reached := of(figures{server: 26, p99: 6, redis: 0.1})
	if err := reached.missed(); err != nil || strings.Count(reached.page(), "| reached |") != 5 {
		t.Errorf("missed: %v\n%s", err, reached.page())
	}
	missed := of(figures{server: 26.1, p99: 6.1, redis: 0.101})
	if err := missed.missed(); err == nil || strings.Count(err.Error(), "missed: ") != 5 || strings.Count(missed.page(), "**missed**") != 5 {
		t.Errorf("missed: %v\n%s", err, missed.page())
	}
}
