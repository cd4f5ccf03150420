package kuadrant_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/rls"
	"github.com/hybridlimit/hybridlimit/rls/kuadrant"
)

// TestService checks before calls and reports their tokens, over gRPC, with and without an interceptor.
func TestService(t *testing.T) {
	hub, err := hybrid.NewHub(redistest.New(t).Client(t), hybrid.HubConfig{FleetSize: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	o := rls.Options{}
	o.Limiter.MaxWait = 5 * time.Second
	service, err := rls.New(hub, o)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := rls.ParseRules([]rls.File{{Name: "a", Data: []byte("domain: llm\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 100}}\n")}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := service.SetRules(rules); err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int64
	for user, options := range map[string][]grpc.ServerOption{"a": nil, "b": {grpc.UnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if strings.HasPrefix(info.FullMethod, "/"+kuadrant.Name+"/") {
				seen.Add(1)
			}
			return next(ctx, req)
		})}} {
		server := grpc.NewServer(options...)
		kuadrant.Register(server, service)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go server.Serve(l)
		t.Cleanup(server.Stop)
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		call := func(method string, n uint32) (pb.RateLimitResponse_Code, uint32) {
			t.Helper()
			d := &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}
			req, res := &pb.RateLimitRequest{Domain: "llm", Descriptors: []*ratelimit.RateLimitDescriptor{d}, HitsAddend: n}, new(pb.RateLimitResponse)
			if err := conn.Invoke(t.Context(), "/"+kuadrant.Name+"/"+method, req, res); err != nil {
				t.Fatal(err)
			}
			return res.GetOverallCode(), res.GetStatuses()[0].GetLimitRemaining()
		}
		const ok, over = pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT
		for i, step := range []struct {
			method string
			n      uint32
			code   pb.RateLimitResponse_Code
			left   uint32
		}{
			{"CheckRateLimit", 0, ok, 100},
			{"CheckRateLimit", 0, ok, 100},
			{"Report", 60, ok, 40},
			{"CheckRateLimit", 0, ok, 40},
			{"Report", 60, over, 0},
			{"CheckRateLimit", 0, over, 0},
		} {
			if code, left := call(step.method, step.n); code != step.code || left != step.left {
				t.Errorf("step %d: %v, %d left, want %v, %d", i, code, left, step.code, step.left)
			}
		}
	}
	if seen.Load() != 6 {
		t.Errorf("the interceptor saw %d calls", seen.Load())
	}
}
