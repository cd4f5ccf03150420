// Package xds takes the rules of a rate limit service from a control plane: RateLimitConfig of xDS, by an aggregated
// stream in the state-of-the-world form, as envoyproxy/ratelimit does. Each push has all rules.
package xds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
)

// Type is the type of the resources.
const Type = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	// leastWait and mostWait bound the time between two tries to connect.
	leastWait = 100 * time.Millisecond
	mostWait  = 5 * time.Second
	// A control plane that hangs is found after silentFor and pingFor. One that allows fewer pings closes the connection,
	// and then gRPC doubles the first of them.
	silentFor = 10 * time.Second
	pingFor   = 3 * time.Second
	// maxRefusal is the longest text of a refusal, in bytes.
	maxRefusal = 4096
)

// Client asks a control plane for rules. All fields but Header are required.
type Client struct {
	Address     string
	Credentials credentials.TransportCredentials
	Node        *core.Node
	Header      metadata.MD // of the stream
	MaxBytes    int         // of a push
	// Apply puts the resources of a push in force, or returns why it does not. Then the control plane is told, and those
	// before stay in force.
	Apply func(resources []*anypb.Any) error
	// Note is called with the result of each push, and with the error that ended a stream.
	Note func(pushed bool, err error)
}

// Run asks until ctx ends. It returns an error if the address cannot be one.
func (c *Client) Run(ctx context.Context) error {
	conn, err := grpc.NewClient(c.Address,
		grpc.WithTransportCredentials(c.Credentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.MaxBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silentFor, Timeout: pingFor}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: leastWait, Multiplier: 2, Jitter: 0.2, MaxDelay: mostWait}, MinConnectTimeout: mostWait,
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	for wait := leastWait; ; wait = min(2*wait, mostWait) {
		heard, err := c.stream(ctx, conn)
		if ctx.Err() != nil {
			return nil
		}
		c.Note(false, err)
		if heard {
			wait = leastWait
		}
		if sleep(ctx, wait/2+rand.N(wait/2)) != nil {
			return nil
		}
	}
}

// stream asks on one stream until it ends. Heard reports whether there was a push.
//
// The first request names no version, so that the control plane sends all rules: after a restart it may give an old name
// to new ones.
func (c *Client) stream(ctx context.Context, conn *grpc.ClientConn) (heard bool, err error) {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, c.Header))
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	req := &discovery.DiscoveryRequest{Node: c.Node, TypeUrl: Type}
	version := "" // accepted on this stream
	for {
		if err := stream.Send(req); err != nil {
			_, err = stream.Recv() // the reason
			return heard, err
		}
		res, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		began := time.Now()
		req = &discovery.DiscoveryRequest{TypeUrl: Type, ResponseNonce: res.GetNonce()}
		if err := c.apply(res); err != nil {
			text := err.Error()
			text = strings.ToValidUTF8(text[:min(len(text), maxRefusal)], "")
			req.ErrorDetail = &rpc.Status{Code: int32(codes.InvalidArgument), Message: text}
			c.Note(true, err)
			// A control plane that pushes nonsense again and again must not use a processor up.
			if err := sleep(ctx, min(max(leastWait, 4*time.Since(began)), mostWait)); err != nil {
				return heard, err
			}
		} else {
			version = res.GetVersionInfo()
			c.Note(true, nil)
		}
		req.VersionInfo = version
	}
}

func (c *Client) apply(res *discovery.DiscoveryResponse) error {
	if res.GetTypeUrl() != Type {
		return fmt.Errorf("the push has the type %.200q, and not %s", res.GetTypeUrl(), Type)
	}
	return c.Apply(res.GetResources())
}

// sleep waits, and returns the error of a context that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
