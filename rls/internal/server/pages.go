package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/hybridlimit/hybridlimit/rls"
)

// maxRequest is the size of the largest request, in bytes: a message of gRPC, or a body of /json. Empty descriptors
// take fifty times their size in memory before they are counted, and Envoy's headers are at most 60 KiB by default.
const maxRequest = 256 << 10

// maxReport is the size of the largest report of the quota service, in bytes: ten thousand buckets have 350 KB and more.
const maxReport = 1 << 20

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
	mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) { serveRules(w, service) })
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

// metricsHandler serves the metrics only.
func metricsHandler(path string, reg *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(path, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

// debugHandler serves the pages of envoyproxy/ratelimit's debug port that have a meaning here.
func debugHandler(service *rls.Service) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) { serveRules(w, service) })
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// serveRules writes the rules in force.
func serveRules(w http.ResponseWriter, service *rls.Service) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	dump(w, service.Rules())
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
