// Package kuadrant serves kuadrant.service.ratelimit.v1.RateLimitService on a service of package rls: CheckRateLimit
// before a call, and Report after it, for example with the tokens of a response. Its messages are those of Envoy.
//
// It is no replacement of Limitador: the rules are those of package rls, and not CEL. It has neither Reserve nor Commit.
package kuadrant

import (
	"context"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/rls"
)

// Name is the name of the service.
const Name = "kuadrant.service.ratelimit.v1.RateLimitService"

// Register adds the service to a gRPC server. CheckRateLimit is Service.Check, and Report is Service.Report.
func Register(to grpc.ServiceRegistrar, service *rls.Service) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: Name,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "CheckRateLimit", Handler: handler("CheckRateLimit", service.Check)},
			{MethodName: "Report", Handler: handler("Report", service.Report)},
		},
		Metadata: "kuadrantrls.proto",
	}, service)
}

// method is a method of the service.
type method func(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error)

// handler makes a handler of a method, as protoc-gen-go-grpc does.
func handler(name string, of method) grpc.MethodHandler {
	return func(s any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
		in := new(pb.RateLimitRequest)
		if err := decode(in); err != nil {
			return nil, err
		}
		if through == nil {
			return of(ctx, in)
		}
		info := &grpc.UnaryServerInfo{Server: s, FullMethod: "/" + Name + "/" + name}
		return through(ctx, in, info, func(ctx context.Context, req any) (any, error) {
			return of(ctx, req.(*pb.RateLimitRequest))
		})
	}
}
