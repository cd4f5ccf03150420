// Package server is the program hybridlimit-rls.
package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/rls"
	"github.com/hybridlimit/hybridlimit/rls/rlqs"
)

// pagesDrain is the time for HTTP requests in flight at the end.
const pagesDrain = time.Second

// server is the program while it runs.
type server struct {
	settings Settings
	log      *slog.Logger
	hub      *hybrid.Hub
	service  *rls.Service
	quotas   *rlqs.Service         // nil: not asked for
	rules    func(context.Context) // keeps them as those of their source
	certs    *certificates         // nil: no TLS
	grpc     *grpc.Server
	pages    []*http.Server
	ready    *readiness
	tasks    sync.WaitGroup
	ends     []func() // in the order of their start
}

// Run serves until ctx ends, and then ends in order: health checks fail, calls in flight end, and the counts are sent
// to Redis. Then it returns nil, also if Redis is away. Started, if not nil, is called when the server listens.
func Run(ctx context.Context, s Settings, stderr io.Writer, started func(Addresses)) error {
	srv := &server{settings: s, log: s.Log.open(stderr), ready: newReadiness(&s)}
	defer srv.close()
	for _, text := range s.Warnings {
		srv.log.Warn("hybridlimit-rls: " + text)
	}
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
	srv.log.Info("hybridlimit-rls: serving", slog.String("grpc", on.GRPC), slog.String("http", on.HTTP),
		slog.String("metrics", on.Metrics), slog.String("debug", on.Debug))
	if started != nil {
		started(on)
	}
	select {
	case <-ctx.Done():
		srv.drain()
		return nil
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
	if s.Quotas {
		if srv.quotas, err = rlqs.New(srv.hub, srv.service, srv.log); err != nil {
			return nil, err
		}
		srv.ends = append(srv.ends, func() { srv.quotas.Close() })
	}
	reg.MustRegister(srv.service.Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := srv.follow(ctx, provider); err != nil {
		return nil, err
	}
	if s.TLS.Cert != "" {
		srv.certs, err = newCertificates(ctx, s.TLS, srv.log)
	}
	return reg, err
}

// watch starts the tasks of the background.
func (srv *server) watch(ctx context.Context) {
	srv.tasks.Go(func() {
		srv.rules(ctx)
	})
	if srv.certs != nil {
		srv.tasks.Go(func() { srv.certs.run(ctx, srv.settings.Poll) })
	}
	srv.tasks.Go(func() {
		// Without Redis the server answers by share: that is better than no answer.
		wait, cancel := context.WithTimeout(ctx, srv.settings.ReadyIn)
		defer cancel()
		err := srv.hub.Ready(wait)
		if ctx.Err() != nil || srv.ready.ends() {
			return
		}
		if err != nil {
			srv.log.Warn("hybridlimit-rls: Redis has not answered yet; the server is ready and decides without it", slog.Any("error", err))
		}
		srv.ready.change(func() { srv.ready.redis = true })
	})
}

// follow finds the source of the rules. Those of files are in force when it returns.
func (srv *server) follow(ctx context.Context, provider *sdk.MeterProvider) error {
	if srv.settings.XDS.Address != "" {
		p, err := newPushes(srv.settings, srv.service, srv.log, srv.inForce)
		if err != nil {
			return err
		}
		srv.rules = p.run
		return p.measure(provider)
	}
	w, err := newWatcher(ctx, srv.settings, srv.service, srv.log, srv.inForce)
	if err != nil {
		return err
	}
	srv.rules = func(ctx context.Context) { w.run(ctx, srv.settings.Poll, srv.service.CountRefused) }
	return w.measure(provider)
}

// inForce is called with rules that were put in force.
func (srv *server) inForce(rules *rls.Rules) {
	srv.ready.change(func() {
		srv.ready.rules = true
		srv.ready.domain = !srv.settings.Domain || len(rules.Domains()) > 0
	})
}

// drain ends the calls in flight and sends the counts to Redis. Units that Redis does not hear of are lost, and logged: a
// server that ends without Redis has done its work, so that is no error.
func (srv *server) drain() {
	srv.log.Info("hybridlimit-rls: draining")
	srv.ready.drain()
	over := time.AfterFunc(srv.settings.Drain, func() {
		srv.log.Warn("hybridlimit-rls: calls are still in flight at the end of -drain; they are cancelled")
		srv.grpc.Stop()
	})
	if srv.quotas != nil {
		srv.quotas.Close() // its streams do not end by themselves
	}
	srv.grpc.GracefulStop() // Stop ends it
	over.Stop()
	pages, cancel := context.WithTimeout(context.Background(), pagesDrain) // a slow client must not use up the time of the counts
	for _, p := range srv.pages {
		p.Shutdown(pages)
	}
	cancel()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := srv.hub.Shutdown(ctx); err != nil {
		srv.log.Warn("hybridlimit-rls: Redis was not told all counts; they are lost, so that the fleet may admit that much more", slog.Any("error", err))
	}
	srv.log.Info("hybridlimit-rls: ended")
}

// open returns the log.
func (l Log) open(to io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.JSON {
		return slog.New(slog.NewJSONHandler(to, o))
	}
	return slog.New(slog.NewTextHandler(to, o))
}
