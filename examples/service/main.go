// Service is an HTTP service with two limits on a request and one on the requests that run, limits from a file, metrics
// for Prometheus, and a clean stop. docs/getting-started.md explains it; compose.yaml runs three replicas of it with
// Redis, Prometheus and Grafana.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limitfile"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr, limits := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"), cmp.Or(os.Getenv("LIMITS"), "limits.json")
	if err := run(ctx, addr, limits); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, addr, limits string) error {
	exporter, err := prometheus.New() // the bridge from OpenTelemetry to Prometheus's registry
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	redis.SetLogger(&logging.VoidLogger{}) // the library logs outages itself, once
	rdb := redis.NewClient(&redis.Options{
		Addr:     cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379"),
		Username: os.Getenv("REDIS_USERNAME"),
		Password: os.Getenv("REDIS_PASSWORD"),
	})
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{FleetSize: 3, MeterProvider: provider})
	if err != nil {
		return err
	}
	perUser, err := hub.Limiter(hybridlimit.PerMinute(60), hybrid.Config{Name: "user", LogDenials: time.Minute})
	if err != nil {
		return err
	}
	perTenant, err := hub.Limiter(hybridlimit.PerSecond(100), hybrid.Config{Name: "tenant"})
	if err != nil {
		return err
	}
	running, err := hub.Concurrency(hybridlimit.Concurrent(50), hybrid.ConcurrencyConfig{Name: "running"})
	if err != nil {
		return err
	}
	file, err := limitfile.Watch(limits, hub, limitfile.Config{MeterProvider: provider}) // limits that change without a deploy
	if err != nil {
		return err
	}
	limit, err := httplimit.New(httplimit.Config{},
		httplimit.Limit{Limiter: perUser, Key: httplimit.User("", user)},
		httplimit.Limit{Limiter: perTenant, Key: tenant, Required: true},
		httplimit.Limit{Limiter: running, Key: httplimit.Everyone()})
	if err != nil {
		return err
	}

	warm, cancel := context.WithTimeout(ctx, 3*time.Second)
	if err := hub.Ready(warm); err != nil {
		log.Print(err) // the limits decide without Redis
	}
	cancel()

	mux := http.NewServeMux()
	mux.Handle("GET /orders", limit(http.HandlerFunc(orders)))
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /metrics", promhttp.Handler())
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// The order matters: no request asks a closed limiter, the hub pays before its client is
	// closed, and the last figures are collected.
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(ending), file.Close(), hub.Shutdown(ending), rdb.Close(), provider.Shutdown(ending))
}

func orders(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "no orders") }

// user and tenant stand for what your authentication has found. Never take them from a field
// that the client writes, as this example does.
func user(r *http.Request) string { return r.Header.Get("X-User") }

func tenant(r *http.Request) string {
	if t := r.Header.Get("X-Tenant"); t != "" {
		return "tenant:" + t
	}
	return ""
}
