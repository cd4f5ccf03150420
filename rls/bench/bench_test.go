package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
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
	of := func(perSecond, process, p99, redis float64) *results {
		figures := func(perSecond, process, p99, redis float64) benchkit.Figures {
			return benchkit.Figures{"process": process, "p99": p99, "cpu": redis, "p50": 1, "perSecond": perSecond}
		}
		r := &results{size: scale{rounds: 3}}
		for _, l := range loads {
			for range 3 {
				r.Add(table, l.name, emptyName, figures(1, 20, 1, 0))
				r.Add(table, l.name, theirName, figures(1, 70, 8, 10))
			}
			mine := redis
			if l.values > 1 {
				mine *= 100
			}
			r.Add(table, l.name, ourName, figures(0, 1000, 1000, 1000)) // one bad round of three
			r.Add(table, l.name, ourName, figures(perSecond, process, p99, mine))
			r.Add(table, l.name, ourName, figures(perSecond, process, p99, mine))
		}
		return r
	}
	reached := of(2.5, 26, 6, 0.1)
	if err := benchkit.Missed(reached.goals()); err != nil || strings.Count(reached.page(), "| reached |") != 6 {
		t.Errorf("missed: %v\n%s", err, reached.page())
	}
	missed := of(2.4, 26.1, 6.1, 0.101)
	if err := benchkit.Missed(missed.goals()); err == nil || strings.Count(err.Error(), "missed: ") != 6 || strings.Count(missed.page(), "**missed**") != 6 {
		t.Errorf("missed: %v\n%s", err, missed.page())
	}
}
