package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hybridlimit/hybridlimit/rls/kuadrant"
)

// handshakeTimeout bounds a client that connects and says nothing. grpc-go's GracefulStop and Stop wait for it, by
// default for two minutes.
const handshakeTimeout = 5 * time.Second

// StreamWorkers is the number of goroutines that serve one call after the other, beside the new ones that grpc-go makes
// for more calls at a time. A new goroutine grows its stack in each call, which costs CPU in calls that ask Redis.
const StreamWorkers = 128

// Addresses are the addresses on which a server listens. Empty: that server was not asked for.
type Addresses struct{ GRPC, HTTP, Metrics, Debug string }

// listen starts the servers. The channel has their errors.
func (srv *server) listen(reg *prometheus.Registry) (on Addresses, failed <-chan error, err error) {
	s := &srv.settings
	options := []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout), grpc.NumStreamWorkers(StreamWorkers),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: s.Age.Most, MaxConnectionAgeGrace: s.Age.Grace}),
	}
	if srv.certs != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(srv.certs.config())))
	}
	if s.Timed {
		options = append(options, grpc.ChainUnaryInterceptor(timed(reg)))
	}
	if srv.quotas != nil { // a report of all buckets of an Envoy is larger than a request
		options = append(options, grpc.MaxRecvMsgSize(maxReport), grpc.ChainUnaryInterceptor(small))
	} else {
		options = append(options, grpc.MaxRecvMsgSize(maxRequest))
	}
	srv.grpc = grpc.NewServer(options...)
	pb.RegisterRateLimitServiceServer(srv.grpc, srv.service)
	kuadrant.Register(srv.grpc, srv.service)
	healthpb.RegisterHealthServer(srv.grpc, srv.ready.grpc)
	if srv.quotas != nil {
		quotapb.RegisterRateLimitQuotaServiceServer(srv.grpc, srv.quotas)
	}
	if s.Reflect {
		reflection.Register(srv.grpc)
	}
	srv.ends = append(srv.ends, srv.grpc.Stop)
	errs := make(chan error, 4)
	if on.GRPC, err = serve("-grpc", s.GRPC, srv.grpc.Serve, errs); err != nil {
		return on, errs, err
	}
	for _, page := range []struct {
		name, address string
		handler       func() http.Handler
		on            *string
	}{
		{"-http", s.HTTP, func() http.Handler { return handler(srv.service, reg, srv.ready.yes.Load) }, &on.HTTP},
		{"-metrics", s.Metrics, func() http.Handler { return metricsHandler(s.Path, reg) }, &on.Metrics},
		{"-debug", s.Debug, func() http.Handler { return debugHandler(srv.service) }, &on.Debug},
	} {
		if page.address == "" {
			continue
		}
		server := httpServer(page.handler())
		srv.pages = append(srv.pages, server)
		srv.ends = append(srv.ends, func() { server.Close() })
		if *page.on, err = serve(page.name, page.address, server.Serve, errs); err != nil {
			return on, errs, err
		}
	}
	return on, errs, nil
}

// small refuses a request that is larger than maxRequest, where messages may be larger.
func small(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if m, ok := req.(proto.Message); ok && proto.Size(m) > maxRequest {
		return nil, status.Errorf(codes.ResourceExhausted, "a request has at most %d bytes, not %d", maxRequest, proto.Size(m))
	}
	return next(ctx, req)
}

// serve listens on an address, and returns it. Errors of with go to errs.
func serve(name, address string, with func(net.Listener) error, errs chan<- error) (string, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
		if strings.HasPrefix(path, "//") { // unix:///path
			address = "/" + strings.TrimLeft(path, "/")
		}
		if err := removeSocket(address); err != nil {
			return "", fmt.Errorf("hybridlimit-rls: %s: %w", name, err)
		}
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return "", fmt.Errorf("hybridlimit-rls: %s: %w", name, err)
	}
	go func() {
		if err := with(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			errs <- fmt.Errorf("hybridlimit-rls: %s: %w", name, err)
		}
	}()
	return l.Addr().String(), nil
}

// removeSocket removes a socket that a process left behind that has ended. It leaves one on which a process listens, and
// a file that is no socket: then listening fails.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return nil //nolint:nilerr // there is nothing to remove
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return nil
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return nil
}
