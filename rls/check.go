package rls

import (
	"fmt"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxValue is the length of the longest domain, key or value of a request, in bytes. Envoy's headers are at most 60 KiB
// by default. gRPC bounds the request as a whole.
const maxValue = 64 << 10

// check returns the error of a request that is not decided. It does no other work.
func (s *Service) check(req *pb.RateLimitRequest) error {
	switch most := s.options.MaxDescriptors; {
	case req.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "rls: domain must not be empty")
	case len(req.GetDomain()) > maxValue:
		return tooLong("domain", len(req.GetDomain()))
	case len(req.GetDescriptors()) == 0:
		return status.Error(codes.InvalidArgument, "rls: descriptors must not be empty")
	case len(req.GetDescriptors()) > most:
		return tooMany("descriptors", len(req.GetDescriptors()), most)
	}
	for _, d := range req.GetDescriptors() {
		if most := s.options.MaxDescriptors; len(d.GetEntries()) > most {
			return tooMany("entries of a descriptor", len(d.GetEntries()), most)
		}
		for _, e := range d.GetEntries() {
			if n := max(len(e.GetKey()), len(e.GetValue())); n > maxValue {
				return tooLong("key or value of a descriptor", n)
			}
		}
	}
	return nil
}

func tooMany(field string, n, most int) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf("rls: %s (%d) must be at most %d", field, n, most))
}

func tooLong(field string, n int) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf("rls: %s (%d bytes) must be at most %d bytes", field, n, maxValue))
}
