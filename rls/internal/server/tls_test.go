package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/tlstest"
)

// call asks over TLS. It trusts the certificate of one file, and shows one, if not nil.
func call(t *testing.T, addr, trust string, show []tls.Certificate) error {
	t.Helper()
	text, err := os.ReadFile(trust)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "localhost", Certificates: show})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{
		Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{entry("x", "")},
	})
	return err
}

// Clients need a certificate of the authority, and new connections get the certificate
// that the files have now.
func TestTLS(t *testing.T) {
	dir, serverDir := t.TempDir(), t.TempDir()
	clientCert, clientKey := tlstest.Certify(t, dir, "client")
	strangerCert, strangerKey := tlstest.Certify(t, dir, "stranger")
	cert, key := tlstest.Certify(t, serverDir, "server")
	r := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules), "-tls-cert", cert, "-tls-key", key, "-tls-client-ca", clientCert)
	load := func(cert, key string) []tls.Certificate {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{pair}
	}
	client := load(clientCert, clientKey)
	if err := call(t, r.on.GRPC, cert, client); err != nil {
		t.Error(err)
	}
	for name, show := range map[string][]tls.Certificate{"none": nil, "stranger": load(strangerCert, strangerKey)} {
		if err := call(t, r.on.GRPC, cert, show); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, ok := range map[string]bool{"client.example": false, "localhost": true} {
		named := start(t, "-config", write(t, t.TempDir(), "a.yaml", someRules), "-tls-cert", cert, "-tls-key", key, "-tls-client-ca", clientCert, "-tls-client-name", name)
		if err := call(t, named.on.GRPC, cert, client); (err == nil) != ok {
			t.Errorf("-tls-client-name %s: %v", name, err)
		}
	}
	if err := os.WriteFile(key, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "the broken files are logged", func() bool {
		return strings.Contains(r.log.String(), "the TLS files cannot be used")
	})
	if err := call(t, r.on.GRPC, cert, client); err != nil {
		t.Errorf("after broken files: %v", err)
	}
	old, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	oldCert := filepath.Join(dir, "old.crt")
	if err := os.WriteFile(oldCert, old, 0o600); err != nil {
		t.Fatal(err)
	}
	tlstest.Certify(t, serverDir, "server")
	redistest.Eventually(t, 10*time.Second, "the new certificate is in use", func() bool { return call(t, r.on.GRPC, cert, client) == nil })
	if err := call(t, r.on.GRPC, oldCert, client); err == nil {
		t.Error("the old certificate is still in use")
	}
}
