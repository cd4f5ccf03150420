package server

import (
	"context"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// timed returns an interceptor that measures the time of each answer in a histogram of reg, under the name that
// envoyproxy/ratelimit gives it.
func timed(reg *prometheus.Registry) grpc.UnaryServerInterceptor {
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ratelimit_service_response_time_seconds", Help: "Times of answers.",
		Buckets: []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 15e-3, 20e-3, 50e-3, 0.1, 1},
	}, []string{"grpc_method"})
	reg.MustRegister(times)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		begin := time.Now()
		defer func() { times.WithLabelValues(path.Base(info.FullMethod)).Observe(time.Since(begin).Seconds()) }()
		return next(ctx, req)
	}
}
