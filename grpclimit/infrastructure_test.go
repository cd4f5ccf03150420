package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

// Health checks and reflection are exempt, also under a required limit without a key for them. A function of Config.Skip replaces
// that. A service whose name only begins alike is no such call.
func TestInfrastructureIsExempt(t *testing.T) {
	byUser := grpclimit.Limit{Limiter: limittest.DenyAll(1), Key: grpclimit.User("", func(context.Context) string { return "" }), Required: true}
	denyAll := grpclimit.Limit{Limiter: limittest.DenyAll(1), Key: grpclimit.Everyone()}
	nobody := func(context.Context, grpclimit.Call) bool { return false }
	for _, c := range []struct {
		method string
		skip   func(context.Context, grpclimit.Call) bool
		want   codes.Code
	}{
		{"/grpc.health.v1.Health/Check", nil, codes.OK},
		{"/grpc.health.v1.Health/Watch", nil, codes.OK},
		{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", nil, codes.OK},
		{"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", nil, codes.OK},
		{"/grpc.health.v1.Health/Check", nobody, codes.ResourceExhausted},
		{"/grpc.health.v1.Healthy/Check", nil, codes.ResourceExhausted},
		{"/shop.Orders/List", nil, codes.ResourceExhausted},
		{"", nil, codes.ResourceExhausted},
	} {
		for name, limit := range map[string]grpclimit.Limit{"required": byUser, "used up": denyAll} {
			cfg := grpclimit.Config{Skip: c.skip}
			unary, err := grpclimit.UnaryServer(cfg, limit)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := grpclimit.StreamServer(cfg, limit)
			if err != nil {
				t.Fatal(err)
			}
			_, err = unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: c.method}, func(context.Context, any) (any, error) { return nil, nil })
			if got := status.Code(err); got != c.want {
				t.Errorf("%s, %s: %v, want %v", name, c.method, got, c.want)
			}
			err = stream(struct{}{}, infrastructureStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: c.method}, func(any, grpc.ServerStream) error { return nil })
			if got := status.Code(err); got != c.want {
				t.Errorf("%s, stream %s: %v, want %v", name, c.method, got, c.want)
			}
		}
	}
}

type infrastructureStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s infrastructureStream) Context() context.Context { return s.ctx }

func (infrastructureStream) SetTrailer(metadata.MD) {}
