package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// page returns a page of a server.
func page(t *testing.T, address, path string) (int, string) {
	t.Helper()
	res, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestServersForPages has a server for metrics and one for debugging.
func TestServersForPages(t *testing.T) {
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules), "-metrics", "127.0.0.1:0", "-metrics-path", "/m",
		"-debug", "127.0.0.1:0", "-response-times", "-reflection", "-near-ratio", "0.2")
	r.ask("shop", 2, entry("user", "a"))
	_, text := page(t, r.on.Metrics, "/m")
	for _, want := range []string{
		`ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 1`,
		`ratelimit_service_rate_limit_near_limit{domain="shop",key1="user",key2=""} 1`, // the second unit of five
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no metric %s in\n%s", want, text)
		}
	}
	if _, text := page(t, r.on.Debug, "/rlconfig"); !strings.Contains(text, "shop.user: unit=DAY") {
		t.Error(text)
	}
	if code, text := page(t, r.on.Debug, "/debug/pprof/"); code != 200 || !strings.Contains(text, "goroutine") {
		t.Error(code, text)
	}
	for _, missing := range []string{r.on.HTTP + "/debug/pprof/", r.on.Metrics + "/metrics", r.on.Debug + "/m"} {
		address, path, _ := strings.Cut(missing, "/")
		if code, _ := page(t, address, "/"+path); code != http.StatusNotFound {
			t.Errorf("%s: %d", missing, code)
		}
	}
	if services := r.reflected(); !strings.Contains(services, "envoy.service.ratelimit.v3.RateLimitService") {
		t.Error(services)
	}
}

// TestSocket serves on a socket. One that a dead process left is replaced, one of a living process is not.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rls.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	config := write(t, t.TempDir(), "a.yaml", someRules)
	r := start(t, "-config", config, "-grpc", "unix://"+path, "-http", "")
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := &pb.RateLimitRequest{Domain: "shop"}
	req.Descriptors = append(req.Descriptors, entry("user", "a"))
	if res, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), req); err != nil || res.GetStatuses()[0].GetLimitRemaining() != 4 {
		t.Errorf("%v, %v", res, err)
	}
	s, err := ParseFlags([]string{"-config", config, "-grpc", "unix:" + path, "-http", ""}, os.Getenv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), s, io.Discard, nil); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second process: %v", err)
	}
	r.stop()
	r.end()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
	if err := os.WriteFile(path, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), s, io.Discard, nil); err == nil {
		t.Error("it serves instead of a file")
	}
	if text, _ := os.ReadFile(path); string(text) != "a file" {
		t.Errorf("the file has %q", text)
	}
}

// TestStartWithoutRules starts with files that cannot be used. Calls have an error until there are rules.
func TestStartWithoutRules(t *testing.T) {
	dir := write(t, t.TempDir(), "a.yaml", "domain: \"\"\n")
	r := start(t, "-config", dir, "-start-without-rules")
	redistest.Eventually(t, 10*time.Second, "ready", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
	ask := func() (*pb.RateLimitResponse, error) {
		req := &pb.RateLimitRequest{Domain: "shop"}
		req.Descriptors = append(req.Descriptors, entry("user", "a"))
		return r.client.ShouldRateLimit(context.Background(), req)
	}
	if _, err := ask(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "there are no rules yet") {
		t.Errorf("without rules: %v", err)
	}
	if _, text := r.get("/metrics"); !strings.Contains(text, "\nratelimit_service_config_load_error 1\n") || strings.Contains(text, "config_load_success 1") {
		t.Error("the error is not counted")
	}
	if _, text := r.get("/rlconfig"); text != "" {
		t.Errorf("rules: %s", text)
	}
	if log := r.log.String(); !strings.Contains(log, "a.yaml:1: domain: must not be empty") {
		t.Errorf("no line in %s", log)
	}
	write(t, dir, "a.yaml", someRules)
	redistest.Eventually(t, 10*time.Second, "rules", func() bool {
		res, err := ask()
		return err == nil && res.GetStatuses()[0].GetCurrentLimit() != nil
	})
}

// TestNeedDomain is ready only while there is a domain.
func TestNeedDomain(t *testing.T) {
	dir := write(t, t.TempDir(), "a.yaml", "domain: \"\"\n")
	r := start(t, "-config", dir, "-start-without-rules", "-need-domain")
	redistest.Eventually(t, 10*time.Second, "Redis has answered", func() bool { return strings.Contains(r.log.String(), "serving") })
	if got := r.health(); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("without a domain: %v", got)
	}
	write(t, dir, "a.yaml", "domain: d\n")
	redistest.Eventually(t, 10*time.Second, "ready", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
}

// TestLogFormat writes JSON, with the variables that have no effect.
func TestLogFormat(t *testing.T) {
	s, err := parsed(t, map[string]string{"USE_STATSD": "true", "LOG_FORMAT": "json", "LOG_LEVEL": "warn"}, "-grpc", "nowhere:x", "-http", "")
	if err != nil {
		t.Fatal(err)
	}
	s.Config = write(t, t.TempDir(), "a.yaml", someRules)
	var log strings.Builder
	if err := Run(t.Context(), s, &log, nil); err == nil {
		t.Error("it serves nowhere")
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if !strings.Contains(lines[0], `"msg":"hybridlimit-rls: USE_STATSD has no effect: metrics are for Prometheus: see -metrics"`) || strings.Contains(log.String(), "INFO") {
		t.Error(log.String())
	}
}
