//go:build search

package replay

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/tlstest"
)

// A Redis behind TLS, with a password. Package server tests the connections that are refused.
func TestScenarioRedisTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := tlstest.Certify(t, dir, "redis")
	client, clientKey := tlstest.Certify(t, dir, "client")
	srv := redistest.New(t, redistest.WithArgs("--requirepass", "password123"))
	for name, c := range map[string]struct {
		clientCA string // of Redis
		env      map[string]string
	}{
		"without client certificate": {},
		"with client certificate":    {client, map[string]string{"REDIS_TLS_CLIENT_CERT": client, "REDIS_TLS_CLIENT_KEY": clientKey}},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{
				"REDIS_TLS": "true", "REDIS_URL": "localhost:" + tlstest.Proxy(t, cert, key, c.clientCA, srv.Addr()),
				"REDIS_TLS_CACERT": cert, "REDIS_AUTH": "password123", "CACHE_KEY_PREFIX": "prefix" + fmt.Sprint(len(c.env)),
			}
			maps.Copy(env, c.env)
			basic(t, env)
		})
	}
	if n := redistest.Calls(t, srv.Client(t, func(o *redis.Options) { o.Password = "password123" }))["evalsha"]; n == 0 {
		t.Error("Redis was not asked")
	}
}

// The sentinels have a password of their own.
func TestScenarioSentinel(t *testing.T) {
	master := redistest.New(t, redistest.WithArgs("--requirepass", "password123"))
	urls := []string{"mymaster"}
	for range 2 {
		s := redistest.New(t, redistest.WithArgs("--sentinel", "--requirepass", "sentinel123"), redistest.WithConfig(fmt.Sprintf(
			"sentinel monitor mymaster 127.0.0.1 %d 1\nsentinel auth-pass mymaster password123\n", master.Port())))
		urls = append(urls, s.Addr())
	}
	basic(t, map[string]string{
		"REDIS_TYPE": "SENTINEL", "REDIS_URL": strings.Join(urls, ","), "REDIS_AUTH": "password123", "REDIS_SENTINEL_AUTH": "sentinel123",
	})
	if n := redistest.Calls(t, master.Client(t, func(o *redis.Options) { o.Password = "password123" }))["evalsha"]; n == 0 {
		t.Error("the master was not asked")
	}
}

// The certificate of the gRPC server changes while it runs, and clients need a certificate with a name.
func TestScenarioCertificates(t *testing.T) {
	dir, newer := t.TempDir(), t.TempDir()
	cert, key := tlstest.Certify(t, dir, "server")
	newCert, newKey := tlstest.Certify(t, newer, "server")
	client, clientKey := tlstest.Certify(t, dir, "client")
	before, after := tlstest.Pool(t, cert), tlstest.Pool(t, newCert)
	r := start(t, map[string]string{
		"REDIS_URL": redistest.New(t).Addr(), "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": cert, "GRPC_SERVER_TLS_KEY": key,
		"GRPC_CLIENT_TLS_CACERT": client, "GRPC_CLIENT_TLS_SAN": "localhost",
	})
	pair, err := tls.LoadX509KeyPair(client, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	old := &tls.Config{RootCAs: before, ServerName: "localhost", Certificates: []tls.Certificate{pair}}
	fresh := &tls.Config{RootCAs: after, ServerName: "localhost", Certificates: []tls.Certificate{pair}}
	nobody := &tls.Config{RootCAs: before, ServerName: "localhost"}
	check := func(c *tls.Config) error {
		conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(credentials.NewTLS(c)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	if err := check(old); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]*tls.Config{"the certificate that comes later": fresh, "a client without certificate": nobody} {
		if check(c) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, time.Minute, "the new certificate is in use", func() bool { return check(fresh) == nil })
	if check(old) == nil {
		t.Error("the certificate from before is still in use")
	}
}
