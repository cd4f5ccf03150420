package main

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// The methods of the service.
const (
	now      = "/demo.Weather/Now"
	forecast = "/demo.Weather/Forecast"
)

// newServer returns a server with two limits: each address has 5 calls a second,
// and the costly method two a second from all addresses together. The limiters are
// of one hub, so a call that one of them denies costs nothing in the other.
func newServer(hub *hybrid.Hub) (*grpc.Server, error) {
	peer, err := hub.Limiter(hybridlimit.TokenBucket(5, time.Second, 20), hybrid.Config{Name: "peer"})
	if err != nil {
		return nil, err
	}
	costly, err := hub.Limiter(hybridlimit.TokenBucket(2, time.Second, 2), hybrid.Config{Name: "forecast"})
	if err != nil {
		return nil, err
	}
	isCostly := func(_ context.Context, c grpclimit.Call) bool { return c.Method == forecast }
	limit, err := grpclimit.UnaryServer(grpclimit.Config{},
		grpclimit.Limit{Limiter: peer, Key: grpclimit.Peer(), Required: true},
		grpclimit.Limit{Limiter: costly, Key: grpclimit.When(isCostly, grpclimit.Method())},
	)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit))
	server.RegisterService(&weather, nil)
	return server, nil
}

// weather is a service without generated code, so that the example needs no protoc.
var weather = grpc.ServiceDesc{
	ServiceName: "demo.Weather",
	Methods: []grpc.MethodDesc{
		{MethodName: "Now", Handler: answer(now, "sunny")},
		{MethodName: "Forecast", Handler: answer(forecast, "rain")},
	},
}

// answer returns the handler of a method that always answers text.
func answer(method, text string) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		req := &wrapperspb.StringValue{}
		if err := decode(req); err != nil {
			return nil, err
		}
		handle := func(context.Context, any) (any, error) { return wrapperspb.String(text), nil }
		return intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, handle)
	}
}
