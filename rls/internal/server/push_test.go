package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	control "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/tlstest"
)

// plane is a control plane.
type plane struct {
	t       *testing.T
	cache   cache.SnapshotCache
	server  *grpc.Server
	address string
	version int
}

// newPlane starts a control plane, on an address or, if it is empty, on any.
func newPlane(t *testing.T, address string, o ...grpc.ServerOption) *plane {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{t: t, cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil), server: grpc.NewServer(o...), address: l.Addr().String()}
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, control.NewServer(context.Background(), p.cache, nil))
	go p.server.Serve(l)
	t.Cleanup(p.server.Stop)
	return p
}

// push pushes configurations to the node n.
func (p *plane) push(all ...*config.RateLimitConfig) {
	p.t.Helper()
	var list []types.Resource
	for i, c := range all {
		c.Name = fmt.Sprintf("config%d", i)
		list = append(list, c)
	}
	p.version++
	s, err := cache.NewSnapshot(fmt.Sprint(p.version), map[resource.Type][]types.Resource{resource.RateLimitConfigType: list})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cache.SetSnapshot(context.Background(), "n", s); err != nil {
		p.t.Fatal(err)
	}
}

// ruled returns a configuration of a limit of n a day, and others.
func ruled(n uint32, others int) *config.RateLimitConfig {
	c := &config.RateLimitConfig{Domain: "shop"}
	for i := range others + 1 {
		d := &config.RateLimitDescriptor{Key: "user", RateLimit: &config.RateLimitPolicy{Unit: config.RateLimitUnit_DAY, RequestsPerUnit: n}}
		if i > 0 {
			d.Value = fmt.Sprintf("other%d", i)
		}
		c.Descriptors = append(c.Descriptors, d)
	}
	return c
}

// counted reports whether a metric is above 0.
func counted(text, name string) bool {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest) != "0"
		}
	}
	return false
}

// limit returns the limit of a user; 0: no rule.
func (r *running) limit() (uint32, error) {
	req := &pb.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{entry("user", "b")}}
	res, err := r.client.ShouldRateLimit(context.Background(), req)
	if err != nil {
		return 0, err
	}
	return res.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(), nil
}

// limited waits for a limit, and returns the time that this took.
func (r *running) limited(want uint32) time.Duration {
	r.t.Helper()
	began := time.Now()
	redistest.Eventually(r.t, 20*time.Second, fmt.Sprintf("a limit of %d", want), func() bool {
		got, err := r.limit()
		return err == nil && got == want
	})
	return time.Since(began)
}

// TestRulesOfAControlPlane pushes rules, nonsense, and no rules at all, and stops the control plane in between.
func TestRulesOfAControlPlane(t *testing.T) {
	p := newPlane(t, "")
	r := start(t, "-xds", p.address, "-xds-node", "n")
	if _, err := r.limit(); status.Code(err) != codes.Unavailable {
		t.Errorf("before the first push: %v", err)
	}
	if code, _ := r.get("/healthcheck"); code != http.StatusServiceUnavailable || r.health() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("before the first push: %d, %v", code, r.health())
	}
	p.push(ruled(5, 0))
	r.limited(5)
	redistest.Eventually(t, 10*time.Second, "ready", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
	p.push(ruled(6, 10_000))
	t.Logf("10 001 rules are in force after %v", r.limited(6))

	bad := ruled(7, 0)
	bad.Descriptors[0].RateLimit.Unit = config.RateLimitUnit_UNKNOWN
	p.push(bad)
	logged := func(text string) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, text, func() bool { return strings.Contains(r.log.String(), text) })
	}
	logged("config0: shop.user.rate_limit.unit")
	if got, err := r.limit(); got != 6 || err != nil {
		t.Errorf("after a push that is wrong: %d, %v", got, err)
	}
	_, text := r.get("/metrics")
	if !strings.Contains(text, "\nratelimit_service_config_load_success 2\n") {
		t.Error("two pushes are not counted")
	}
	for _, name := range []string{"ratelimit_service_config_load_error", `rate_limiting_config_errors_total{rate_limiting_config_file="xds:` + p.address + `"}`} {
		if !counted(text, name) { // the control plane pushes it again and again
			t.Errorf("%s is not above 0", name)
		}
	}
	p.push(ruled(8, 0))
	r.limited(8)
	logged("valid again")

	p.server.Stop()
	logged("the control plane cannot be used; the rules before stay in force")
	if got, err := r.limit(); got != 8 || err != nil {
		t.Errorf("without a control plane: %d, %v", got, err)
	}
	next := newPlane(t, p.address)
	next.push(ruled(9, 0)) // its first version has the name of the first one before
	r.limited(9)
	next.push()
	r.limited(0)
	logged("the control plane has no rules any more")
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// TestControlPlaneAndFiles are not given together, and each must be good.
func TestControlPlaneAndFiles(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, []string{"-xds", "h:1"}, `-config, -xds ("c, h:1") must not be set together`},
		{nil, []string{"-config", ""}, `-config ("") is required, or -xds`},
		{map[string]string{"CONFIG_TYPE": "CONSUL"}, nil, `CONFIG_TYPE ("CONSUL") must be FILE or GRPC_XDS_SOTW`},
		{
			nil,
			[]string{"-config", "", "-xds", "h:1", "-xds-node", "", "-xds-max-bytes", "0", "-xds-ca", "/none", "-xds-cert", "c"},
			`-xds-max-bytes (0) must be 1 to 33554432; -xds-node ("") must not be empty; -xds-cert, -xds-key ("c, ") must be set together`,
		},
		{map[string]string{"CONFIG_TYPE": "GRPC_XDS_SOTW", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "big"}, []string{"-config", ""}, `XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES ("big") must be a number`},
	} {
		if _, err := parsed(t, c.env, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
	}
	s, err := parsed(t, map[string]string{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "RUNTIME_ROOT": "/r", "CONFIG_GRPC_XDS_SERVER_URL": "eg:18001", "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit",
		"CONFIG_GRPC_XDS_NODE_METADATA": "a=b,c:d", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "x:y,z:w", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true", "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "eg",
	}, "-config", "")
	if err != nil {
		t.Fatal(err)
	}
	if x := s.XDS; x.Address != "eg:18001" || x.Node != "envoy-ratelimit" || x.Metadata["a"] != "b" || x.Header["z"] != "w" || !x.encrypted() || x.Name != "eg" || len(s.Warnings) != 1 {
		t.Errorf("%+v, %q", x, s.Warnings)
	}
	if s, err := parsed(t, map[string]string{"CONFIG_TYPE": "grpc_xds_sotw", "RUNTIME_ROOT": "/r"}, "-config", ""); err != nil || s.XDS.Address != "localhost:18000" {
		t.Errorf("%+v, %v", s.XDS, err)
	}
}

// TestControlPlaneOverTLS needs the right authority, name and client certificate.
func TestControlPlaneOverTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := tlstest.Certify(t, dir, "plane")
	clientCert, clientKey := tlstest.Certify(t, dir, "client")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(clientCert)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(text)
	p := newPlane(t, "", grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12,
	})))
	p.push(ruled(5, 0))
	good := []string{"-xds", p.address, "-xds-node", "n", "-xds-ca", cert, "-xds-cert", clientCert, "-xds-key", clientKey, "-xds-name", "localhost"}
	start(t, good...).limited(5)
	for name, args := range map[string][]string{
		"another name":          append(slices.Clone(good), "-xds-name", "other"),
		"another authority":     append(slices.Clone(good), "-xds-ca", clientCert),
		"no client certificate": append(slices.Clone(good), "-xds-cert", "", "-xds-key", ""),
	} {
		r := start(t, args...)
		redistest.Eventually(t, 20*time.Second, name, func() bool { return strings.Contains(r.log.String(), msgRefused) })
		if _, err := r.limit(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
