package server

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9/logging"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/lua"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis writes a line for each dial that fails
	os.Exit(m.Run())
}

// running is a server of a test.
type running struct {
	t      *testing.T
	log    testenv.Log
	on     Addresses
	stop   context.CancelFunc
	done   chan error
	conn   *grpc.ClientConn
	client pb.RateLimitServiceClient
}

// start runs a server with these flags.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{t: t, done: make(chan error, 1)}
	s, err := ParseFlags(append([]string{"-grpc", "127.0.0.1:0", "-http", "127.0.0.1:0", "-poll", "100ms"}, args...), func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s.Service.Limiter.MaxWait, s.SyncTimeout = 5*time.Second, 5*time.Second // a busy machine must not change an answer
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	on := make(chan Addresses, 1)
	go func() { r.done <- Run(ctx, s, &r.log, func(a Addresses) { on <- a }) }()
	select {
	case r.on = <-on:
	case err := <-r.done:
		stop()
		t.Fatalf("%v\n%s", err, r.log.String())
	}
	if r.conn, err = grpc.NewClient(r.on.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	r.client = pb.NewRateLimitServiceClient(r.conn)
	t.Cleanup(func() {
		r.conn.Close()
		r.end()
	})
	return r
}

// end stops the server as SIGTERM does, and returns its error.
func (r *running) end() error {
	r.stop()
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(20 * time.Second):
		r.t.Error("the server does not end")
		return nil
	}
}

func (r *running) ask(domain string, n uint32, ds ...*ratelimit.RateLimitDescriptor) *pb.RateLimitResponse {
	r.t.Helper()
	res, err := r.client.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: domain, Descriptors: ds, HitsAddend: n})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	res, err := http.Get("http://" + r.on.HTTP + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func (r *running) health() healthpb.HealthCheckResponse_ServingStatus {
	r.t.Helper()
	res, err := healthpb.NewHealthClient(r.conn).Check(context.Background(), &healthpb.HealthCheckRequest{Service: healthName})
	if err != nil {
		r.t.Fatal(err)
	}
	return res.GetStatus()
}

func entry(key, value string) *ratelimit.RateLimitDescriptor {
	return &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

const someRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 5}
`

// write writes a configuration file and returns the directory.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPages(t *testing.T) {
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules))
	if !strings.Contains(r.log.String(), "WARNING: there is no -redis") {
		t.Errorf("no warning: %s", r.log.String())
	}
	redistest.Eventually(t, 10*time.Second, "healthy", func() bool {
		code, _ := r.get("/healthcheck")
		return code == http.StatusOK && r.health() == healthpb.HealthCheckResponse_SERVING
	})
	for i, want := range []int{200, 200, 200, 200, 200, 429} {
		res, err := http.Post("http://"+r.on.HTTP+"/json", "application/json", strings.NewReader(`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != want {
			t.Errorf("call %d: %d, want %d", i, res.StatusCode, want)
		}
	}
	for _, body := range []string{"", "{", `{"domain":""}`, strings.Repeat("x", maxRequest+1)} {
		res, err := http.Post("http://"+r.on.HTTP+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%.20q: %d", body, res.StatusCode)
		}
	}
	if _, text := r.get("/rlconfig"); !strings.Contains(text, "shop.user: unit=DAY requests_per_unit=5, shadow_mode: false") {
		t.Error(text)
	}
	_, text := r.get("/metrics")
	for _, line := range []string{
		`ratelimit_service_rate_limit_over_limit{domain="shop",key1="user",key2=""} 1`,
		`ratelimit_service_config_load_success 1`,
		`rate_limiting_config_errors_total{rate_limiting_config_file=`,
		`rate_limiting_fleet_size{rate_limiting_policy="rls.shop.`,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("no metric %s", line)
		}
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// Reloads: a broken file is logged with its line and keeps the old rules, a removed one
// takes its rules away, and an empty directory keeps them.
func TestReload(t *testing.T) {
	dir := write(t, t.TempDir(), "a.yaml", someRules)
	write(t, dir, ".hidden.yaml", "nonsense")
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "versions")); err != nil {
		t.Fatal(err)
	}
	r := start(t, "-config", dir)
	if got := r.ask("shop", 2, entry("user", "a")); got.GetStatuses()[0].GetLimitRemaining() != 3 {
		t.Fatal(got)
	}
	logged := func(text string) {
		t.Helper()
		redistest.Eventually(t, 10*time.Second, text, func() bool { return strings.Contains(r.log.String(), text) })
	}
	limit := func(domain string, want uint32) {
		t.Helper()
		redistest.Eventually(t, 10*time.Second, "another limit", func() bool {
			res := r.ask(domain, 0, &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "b"}}})
			return res.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == want
		})
	}
	write(t, dir, "a.yaml", strings.Replace(someRules, "5", "50", 1))
	limit("shop", 50)
	write(t, dir, "a.yaml", strings.Replace(someRules, "day", "fortnight", 1))
	logged("a.yaml:5")
	limit("shop", 50)
	if _, text := r.get("/metrics"); strings.Contains(text, "\nratelimit_service_config_load_error 0\n") {
		t.Error("the error is not counted")
	}
	write(t, dir, "b", strings.Replace(someRules, "shop", "shop2", 1)) // a file of any name
	write(t, dir, "a.yaml", strings.Replace(someRules, "5", "60", 1))
	logged("valid again")
	limit("shop", 60)
	limit("shop2", 5)
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	limit("shop2", 0)
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	logged("has no file; to have no rules")
	limit("shop", 60)
}

// The program does not start with a configuration that cannot be used.
func TestStartFails(t *testing.T) {
	broken := write(t, t.TempDir(), "a.yaml", "domain: \"\"\n")
	for name, args := range map[string][]string{
		"missing": {"-config", filepath.Join(t.TempDir(), "none")},
		"empty":   {"-config", t.TempDir()},
		"broken":  {"-config", broken},
		"address": {"-config", write(t, t.TempDir(), "a.yaml", someRules), "-grpc", "nowhere:x"},
		"cert":    {"-config", write(t, t.TempDir(), "a.yaml", someRules), "-tls-cert", "/none", "-tls-key", "/none"},
	} {
		s, err := ParseFlags(append([]string{"-grpc", "127.0.0.1:0", "-http", ""}, args...), func(string) string { return "" }, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(t.Context(), s, io.Discard, func(Addresses) { t.Errorf("%s: it serves", name) }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFlags(t *testing.T) {
	env := map[string]string{
		"RUNTIME_ROOT": "/r", "RUNTIME_SUBDIRECTORY": "s", "SHADOW_MODE": "true", "LIMIT_RESPONSE_HEADERS_ENABLED": "1",
		"REDIS_URL": "m,h:26379", "REDIS_TYPE": "SENTINEL", "REDIS_AUTH": "u:p", "GRPC_PORT": "9", "LIMIT_RESET_HEADER": "X",
	}
	s, err := ParseFlags(nil, func(name string) string { return env[name] }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Redis.options()
	if err != nil || o.MasterName != "m" || o.Addrs[0] != "h:26379" || o.Username != "u" || o.Password != "p" {
		t.Errorf("%+v, %v", o, err)
	}
	if s.Config != "/r/s/config" || !s.Service.Shadow || !s.Service.LegacyHeaders || s.Service.NoDraftHeaders || s.GRPC != ":9" || s.HTTP != ":8080" || s.Service.ResetHeader != "X" {
		t.Errorf("%+v", s)
	}
	var help bytes.Buffer
	if _, err := ParseFlags([]string{"-help"}, func(string) string { return "" }, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "RUNTIME_ROOT") {
		t.Error(err)
	}
	_, err = ParseFlags([]string{
		"-poll", "1ms", "-fail", "x", "-headers", "y", "-redis", "http://user:secret@z", "-replicas", "-1", "-prefix", "a b", "-tls-cert", "c", "-drain", "-1s", "-tags", "20000", "more",
	}, func(name string) string {
		if name == "QUOTA_MODE" {
			return "maybe"
		}
		return ""
	}, io.Discard)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	for _, field := range []string{"-config", "-poll", "-fail", "-headers", "-redis", "-replicas", "-prefix", "-tls-cert", "-drain", "-tags", "arguments", "QUOTA_MODE"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("no %s in %v", field, err)
		}
	}
}

// A Redis with one master has one tag, so that requests share messages. A cluster has several.
func TestTags(t *testing.T) {
	for args, want := range map[string]int{
		"": 1, "-redis=h:1": 1, "-redis-type=sentinel -redis=m,h:1": 1,
		"-redis=h:1,h:2": lua.DefaultTags, "-redis-type=cluster -redis=h:1": lua.DefaultTags, "-tags=4 -redis=h:1,h:2": 4,
	} {
		s, err := ParseFlags(append([]string{"-config", "c"}, strings.Fields(args)...), func(string) string { return "" }, io.Discard)
		if err != nil || s.tags() != want {
			t.Errorf("%q: %d tags, %v, want %d", args, s.tags(), err, want)
		}
	}
}

// A call in flight is answered after the server was told to end, health checks fail
// meanwhile, and the counts reach Redis: the next process goes on with them.
func TestDrain(t *testing.T) {
	redisServer := redistest.New(t)
	proxy := redistest.NewProxy(t, redisServer.Addr())
	dir := write(t, t.TempDir(), "a.yaml", someRules)
	r := start(t, "-config", dir, "-redis", proxy.Addr())
	redistest.Eventually(t, 10*time.Second, "healthy", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
	r.ask("shop", 2, entry("user", "a"))
	proxy.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := r.client.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{entry("user", "b")}})
		answered <- err
	}()
	redistest.Eventually(t, 10*time.Second, "the call is counted", func() bool {
		_, text := r.get("/metrics")
		return strings.Contains(text, `ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 2`)
	})
	r.stop()
	redistest.Eventually(t, 10*time.Second, "the server drains", func() bool { return strings.Contains(r.log.String(), "draining") })
	if code, _ := r.get("/healthcheck"); code != http.StatusServiceUnavailable {
		t.Errorf("/healthcheck: %d", code)
	}
	select {
	case err := <-answered:
		t.Fatalf("the call did not wait: %v", err)
	default:
	}
	proxy.Resume()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	next := start(t, "-config", dir, "-redis", redisServer.Addr())
	if got := next.ask("shop", 1, entry("user", "a")).GetStatuses()[0].GetLimitRemaining(); got != 2 {
		t.Errorf("%d units are left of 5 after 3", got)
	}
}

// Calls that do not end within -drain are cancelled.
func TestDrainEnds(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.New(t).Addr())
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules), "-redis", proxy.Addr(), "-drain", "50ms")
	redistest.Eventually(t, 10*time.Second, "healthy", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
	proxy.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := r.client.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{entry("user", "b")}})
		answered <- err
	}()
	redistest.Eventually(t, 10*time.Second, "the call is counted", func() bool {
		_, text := r.get("/metrics")
		return strings.Contains(text, `ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 1`)
	})
	r.stop()
	if err := <-answered; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	r.end()
}

// Without Redis the server becomes ready all the same.
func TestReadyWithoutRedis(t *testing.T) {
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules), "-redis", "127.0.0.1:1", "-ready-in", "100ms")
	redistest.Eventually(t, 10*time.Second, "healthy", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
	if !strings.Contains(r.log.String(), "Redis has not answered yet") {
		t.Error(r.log.String())
	}
}
