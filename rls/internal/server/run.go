// Package server is the program hybridlimit-rls.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/rls"
)

// healthName is the name of the service in gRPC health checks, as in envoyproxy/ratelimit. The empty name answers too.
const healthName = "ratelimit"

const (
	// handshakeTimeout bounds a client that connects and says nothing. grpc-go's GracefulStop and Stop wait for it, by
	// default for two minutes.
	handshakeTimeout = 5 * time.Second
	// pagesDrain is the time for HTTP requests in flight at the end.
	pagesDrain = time.Second
)

// Addresses are the addresses on which a server listens.
type Addresses struct{ GRPC, HTTP string }

// server is the program while it runs.
type server struct {
	settings Settings
	log      *slog.Logger
	hub      *hybrid.Hub
	service  *rls.Service
	watcher  *watcher
	certs    *certificates // nil: no TLS
	grpc     *grpc.Server
	http     *http.Server
	health   *health.Server
	ready    atomic.Bool
	draining atomic.Bool // ready stays false
	tasks    sync.WaitGroup
	ends     []func() // in the order of their start
}

// Run serves until ctx ends, and then ends in order: health checks fail, calls in flight end, and the counts are sent
// to Redis. Started, if not nil, is called when the server listens.
func Run(ctx context.Context, s Settings, stderr io.Writer, started func(Addresses)) error {
	srv := &server{settings: s, log: slog.New(slog.NewTextHandler(stderr, nil)), health: health.NewServer()}
	defer srv.close()
	srv.healthy(false)
	// The tasks stop after the calls: ctx itself has ended by then.
	tasks, stop := context.WithCancel(context.WithoutCancel(ctx))
	srv.ends = append(srv.ends, func() { stop(); srv.tasks.Wait() })
	reg, err := srv.prepare(ctx, stderr)
	if err != nil {
		return err
	}
	on, failed, err := srv.listen(reg)
	if err != nil {
		return err
	}
	srv.watch(tasks)
	srv.log.Info("hybridlimit-rls: serving", slog.String("grpc", on.GRPC), slog.String("http", on.HTTP))
	if started != nil {
		started(on)
	}
	select {
	case <-ctx.Done():
		return srv.drain()
	case err := <-failed:
		return err
	}
}

// close ends all that was started, the last first.
func (srv *server) close() {
	for i := len(srv.ends) - 1; i >= 0; i-- {
		srv.ends[i]()
	}
}

// prepare makes the service and puts the rules in force.
func (srv *server) prepare(ctx context.Context, stderr io.Writer) (*prometheus.Registry, error) {
	s := srv.settings
	rdb, end, err := s.Redis.open(stderr)
	if err != nil {
		return nil, err
	}
	srv.ends = append(srv.ends, end)
	reg := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(reg), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(exporter))
	srv.ends = append(srv.ends, func() { provider.Shutdown(context.Background()) })
	srv.hub, err = hybrid.NewHub(rdb, hybrid.HubConfig{
		Prefix: s.Prefix, Tags: s.tags(), FleetSize: s.Replicas, MeterProvider: provider, Logger: srv.log,
		SyncTimeout: s.SyncTimeout,
	})
	if err != nil {
		return nil, err
	}
	srv.ends = append(srv.ends, func() { srv.hub.Close() })
	o := s.Service
	o.Logger = srv.log
	if srv.service, err = rls.New(srv.hub, o); err != nil {
		return nil, err
	}
	reg.MustRegister(srv.service.Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if srv.watcher, err = newWatcher(ctx, s, srv.service, srv.log); err != nil {
		return nil, err
	}
	if err := srv.watcher.measure(provider); err != nil {
		return nil, err
	}
	if s.TLS.Cert != "" {
		srv.certs, err = newCertificates(ctx, s.TLS, srv.log)
	}
	return reg, err
}

// listen starts the servers. The channel has their errors.
func (srv *server) listen(reg *prometheus.Registry) (on Addresses, failed <-chan error, err error) {
	errs := make(chan error, 2)
	l, err := net.Listen("tcp", srv.settings.GRPC)
	if err != nil {
		return on, nil, fmt.Errorf("hybridlimit-rls: -grpc: %w", err)
	}
	on.GRPC = l.Addr().String()
	options := []grpc.ServerOption{grpc.ConnectionTimeout(handshakeTimeout), grpc.MaxRecvMsgSize(maxRequest)}
	if srv.certs != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(srv.certs.config())))
	}
	srv.grpc = grpc.NewServer(options...)
	pb.RegisterRateLimitServiceServer(srv.grpc, srv.service)
	healthpb.RegisterHealthServer(srv.grpc, srv.health)
	srv.ends = append(srv.ends, srv.grpc.Stop)
	go func() {
		if err := srv.grpc.Serve(l); err != nil {
			errs <- fmt.Errorf("hybridlimit-rls: -grpc: %w", err)
		}
	}()
	if srv.settings.HTTP == "" {
		return on, errs, nil
	}
	pages, err := net.Listen("tcp", srv.settings.HTTP)
	if err != nil {
		return on, nil, fmt.Errorf("hybridlimit-rls: -http: %w", err)
	}
	on.HTTP = pages.Addr().String()
	srv.http = httpServer(handler(srv.service, reg, srv.ready.Load))
	srv.ends = append(srv.ends, func() { srv.http.Close() })
	go func() {
		if err := srv.http.Serve(pages); !errors.Is(err, http.ErrServerClosed) {
			errs <- fmt.Errorf("hybridlimit-rls: -http: %w", err)
		}
	}()
	return on, errs, nil
}

// watch starts the tasks of the background.
func (srv *server) watch(ctx context.Context) {
	srv.tasks.Go(func() {
		srv.watcher.run(ctx, srv.settings.Poll, srv.service.CountRefused)
	})
	if srv.certs != nil {
		srv.tasks.Go(func() { srv.certs.run(ctx, srv.settings.Poll) })
	}
	srv.tasks.Go(func() {
		// Without Redis the server answers by share: that is better than no answer.
		wait, cancel := context.WithTimeout(ctx, srv.settings.ReadyIn)
		defer cancel()
		err := srv.hub.Ready(wait)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			srv.log.Warn("hybridlimit-rls: Redis has not answered yet; the server is ready and decides without it", slog.Any("error", err))
		}
		srv.healthy(true)
	})
}

// healthy sets the result of health checks.
func (srv *server) healthy(yes bool) {
	srv.ready.Store(yes)
	if srv.draining.Load() {
		srv.ready.Store(false)
	}
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if yes {
		status = healthpb.HealthCheckResponse_SERVING
	}
	srv.health.SetServingStatus("", status)
	srv.health.SetServingStatus(healthName, status)
}

// drain ends the calls in flight and sends the counts to Redis.
func (srv *server) drain() error {
	srv.log.Info("hybridlimit-rls: draining")
	srv.draining.Store(true)
	srv.ready.Store(false)
	srv.health.Shutdown() // also against a task that sets it later
	stopped := make(chan struct{})
	go func() {
		srv.grpc.GracefulStop()
		close(stopped)
	}()
	limit := time.NewTimer(srv.settings.Drain)
	defer limit.Stop()
	select {
	case <-stopped:
	case <-limit.C:
		srv.log.Warn("hybridlimit-rls: calls are still in flight at the end of -drain; they are cancelled")
		srv.grpc.Stop()
		<-stopped
	}
	if srv.http != nil { // a time of its own: a slow client must not use up that of the counts
		pages, cancel := context.WithTimeout(context.Background(), pagesDrain)
		srv.http.Shutdown(pages)
		cancel()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return srv.hub.Shutdown(ctx)
}
