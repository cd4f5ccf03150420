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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

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
	for _, end := range slices.Backward(srv.ends) {
		end()
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
	if srv.watcher, err = newWatcher(ctx, s, srv.service, srv.log); err == nil {
		err = srv.watcher.measure(provider)
	}
	if err != nil {
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
	serve := func(name, address string, with func(net.Listener) error) (string, error) {
		l, err := net.Listen("tcp", address)
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
	options := []grpc.ServerOption{grpc.ConnectionTimeout(handshakeTimeout), grpc.MaxRecvMsgSize(maxRequest)}
	if srv.certs != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(srv.certs.config())))
	}
	srv.grpc = grpc.NewServer(options...)
	pb.RegisterRateLimitServiceServer(srv.grpc, srv.service)
	healthpb.RegisterHealthServer(srv.grpc, srv.health)
	srv.ends = append(srv.ends, srv.grpc.Stop)
	on.GRPC, err = serve("-grpc", srv.settings.GRPC, srv.grpc.Serve)
	if srv.settings.HTTP == "" || err != nil {
		return on, errs, err
	}
	srv.http = httpServer(handler(srv.service, reg, srv.ready.Load))
	srv.ends = append(srv.ends, func() { srv.http.Close() })
	on.HTTP, err = serve("-http", srv.settings.HTTP, srv.http.Serve)
	return on, errs, err
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
	over := time.AfterFunc(srv.settings.Drain, func() {
		srv.log.Warn("hybridlimit-rls: calls are still in flight at the end of -drain; they are cancelled")
		srv.grpc.Stop()
	})
	srv.grpc.GracefulStop() // Stop ends it
	over.Stop()
	if srv.http != nil { // a time of its own: a slow client must not use up that of the counts
		pages, cancel := context.WithTimeout(context.Background(), pagesDrain)
		srv.http.Shutdown(pages)
		cancel()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return srv.hub.Shutdown(ctx)
}

// maxRequest is the size of the largest request, in bytes: a message of gRPC, or a body of /json. Empty descriptors
// take fifty times their size in memory before they are counted, and Envoy's headers are at most 60 KiB by default.
const maxRequest = 256 << 10

// handler serves the pages for operators.
func handler(service *rls.Service, reg *prometheus.Registry, healthy func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !healthy() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "OK")
	})
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /json", func(w http.ResponseWriter, r *http.Request) { serveJSON(w, r, service) })
	mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		dump(w, service.Rules())
	})
	return mux
}

// serveJSON is ShouldRateLimit over HTTP, as in envoyproxy/ratelimit: 200, 429 if the request is over the limit, or
// 400.
func serveJSON(w http.ResponseWriter, r *http.Request, service *rls.Service) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var req pb.RateLimitRequest
	if err == nil {
		err = protojson.Unmarshal(body, &req)
	}
	if err != nil {
		http.Error(w, "the body is not a RateLimitRequest in JSON", http.StatusBadRequest)
		return
	}
	res, err := service.ShouldRateLimit(r.Context(), &req)
	if err != nil {
		code := http.StatusBadRequest
		if status.Code(err) != codes.InvalidArgument {
			code = http.StatusServiceUnavailable
		}
		http.Error(w, status.Convert(err).Message(), code)
		return
	}
	text, err := protojson.Marshal(res)
	if err != nil {
		http.Error(w, "the answer has no form in JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if res.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	w.Write(text)
}

// dump writes the rules in force, one a line.
func dump(w io.Writer, set *rls.Rules) {
	for _, r := range set.Rules() {
		if r.Unlimited {
			fmt.Fprintf(w, "%s: unlimited=true\n", r.Path)
			continue
		}
		fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t, limit: %v",
			r.Path, r.Unit, r.RequestsPerUnit, r.Shadow, r.Quota, r.Limit)
		if r.Of != nil {
			fmt.Fprintf(w, ", floor: %v in the counts of %s", r.Floor, r.Of.Path)
		}
		fmt.Fprintln(w)
	}
}

// httpServer returns a server whose timeouts bound clients that send or read slowly on purpose.
func httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}
}
