package xds_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hybridlimit/hybridlimit/rls/internal/xds"
)

// plane is a control plane that pushes what a test tells, and gives it all requests.
type plane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	pushes chan *discovery.DiscoveryResponse
	end    chan struct{} // ends a stream
	asks   chan ask
}

// ask is a request, and the header of its stream.
type ask struct {
	*discovery.DiscoveryRequest
	header metadata.MD
}

func (p *plane) StreamAggregatedResources(s grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	header, _ := metadata.FromIncomingContext(s.Context())
	go func() {
		for {
			req, err := s.Recv()
			if err != nil {
				return
			}
			p.asks <- ask{req, header}
		}
	}()
	for {
		select {
		case <-s.Context().Done():
			return nil
		case <-p.end:
			return errors.New("the control plane goes")
		case res := <-p.pushes:
			if err := s.Send(res); err != nil {
				return err
			}
		}
	}
}

// started returns a control plane and its address.
func started(t *testing.T) (*plane, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{pushes: make(chan *discovery.DiscoveryResponse), end: make(chan struct{}), asks: make(chan ask, 100)}
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, p)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return p, l.Addr().String()
}

// TestClient acknowledges what is applied, refuses what is not, and asks anew when a stream ends.
func TestClient(t *testing.T) {
	p, address := started(t)
	var refuse error
	notes := make(chan string, 100)
	c := xds.Client{
		Address: address, Credentials: insecure.NewCredentials(), MaxBytes: 1 << 20, Header: metadata.Pairs("team", "edge"),
		Node:  &core.Node{Id: "n"},
		Apply: func([]*anypb.Any) error { return refuse },
		Note:  func(pushed bool, err error) { notes <- fmt.Sprint(pushed, " ", err) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	expect := func(n int, version, nonce, detail string) ask {
		t.Helper()
		got := <-p.asks
		if got.GetVersionInfo() != version || got.GetResponseNonce() != nonce || !strings.Contains(got.GetErrorDetail().GetMessage(), detail) || got.GetTypeUrl() != xds.Type {
			t.Errorf("request %d: %v, want version %q, nonce %q and %q", n, got, version, nonce, detail)
		}
		if (detail == "") != (got.GetErrorDetail() == nil) {
			t.Errorf("request %d: %v", n, got.GetErrorDetail())
		}
		return got
	}
	heard := func(want string) {
		t.Helper()
		if got := <-notes; !strings.HasPrefix(got, want) {
			t.Errorf("noted %s, want %s", got, want)
		}
	}
	push := func(version, nonce, kind string) {
		p.pushes <- &discovery.DiscoveryResponse{VersionInfo: version, Nonce: nonce, TypeUrl: kind}
	}
	if got := expect(1, "", "", ""); got.GetNode().GetId() != "n" || got.header.Get("team")[0] != "edge" {
		t.Errorf("node %v, header %v", got.GetNode(), got.header)
	}
	push("1", "a", xds.Type)
	expect(2, "1", "a", "")
	heard("true <nil>")
	refuse = errors.New(strings.Repeat("wrong ", 10_000))
	push("2", "b", xds.Type)
	if n := len(expect(3, "1", "b", "wrong").GetErrorDetail().GetMessage()); n > 5000 {
		t.Errorf("the refusal has %d bytes", n)
	}
	heard("true wrong")
	refuse = nil
	push("3", "c", "type.googleapis.com/other")
	expect(4, "1", "c", "other")
	heard("true the push has the type")
	push("4", "d", xds.Type)
	expect(5, "4", "d", "")
	heard("true <nil>")
	p.end <- struct{}{}
	heard("false rpc error")
	expect(6, "", "", "") // a new stream: neither the version nor the nonce of the old one
	push("5", "e", xds.Type)
	expect(7, "5", "e", "")
	heard("true <nil>")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestClientWithoutAControlPlane tries again and again, and ends with its context.
func TestClientWithoutAControlPlane(t *testing.T) {
	tries := make(chan error, 100)
	c := xds.Client{
		Address: "127.0.0.1:1", Credentials: insecure.NewCredentials(), MaxBytes: 1, Node: &core.Node{},
		Apply: func([]*anypb.Any) error { t.Error("applied"); return nil },
		Note:  func(_ bool, err error) { tries <- err },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for range 3 {
		if err := <-tries; err == nil {
			t.Error("no error")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
