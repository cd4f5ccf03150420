package server

import (
	"context"
	"fmt"

	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// reflected returns the services that gRPC reflection tells.
func (r *running) reflected() string {
	r.t.Helper()
	stream, err := reflectpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	req := &reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(req); err != nil {
		r.t.Fatal(err)
	}
	res, err := stream.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	stream.CloseSend()
	return fmt.Sprint(res.GetListServicesResponse())
}
