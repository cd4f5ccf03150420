package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// issue writes a certificate and its key to files: that of an authority if by is
// nil, else one signed by it.
func issue(t *testing.T, dir, name string, by *tls.Certificate) (cert, key string, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	as := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: by == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := as, any(private)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, as, parent, &private.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

// encrypted is a TLS proxy of a Redis. It requires a client certificate of the
// authority.
func encrypted(t *testing.T, own tls.Certificate, authority *x509.Certificate, to string) (addr string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); out.Close() }()
			go func() { _, _ = io.Copy(in, out); in.Close() }()
		}
	}()
	return l.Addr().String()
}

// A Redis with a certificate of a private authority, which requires a client
// certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, _, authority := issue(t, dir, "ca", nil)
	_, _, server := issue(t, dir, "server", &authority)
	cert, key, _ := issue(t, dir, "operator", &authority)
	srv := redistest.New(t)
	used(t, srv.Client(t), hourly, global.Config{Name: "api"}, "alice", 3)
	url := "rediss://" + encrypted(t, server, authority.Leaf, srv.Addr())
	whole := []string{"-name", "api", "-ca", ca, "-cert", cert, "-key", key}
	expect(t, url, append(append([]string{"inspect"}, whole...), "alice"), "bucket had 7.0 units left")
	expect(t, url, append([]string{"top"}, whole...), "1 keys of api, complete")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an authority that nobody knows": {[]string{"-name", "api", "-cert", cert, "-key", key}, "certificate"},
		"without one's own":              {[]string{"-name", "api", "-ca", ca}, "certificate"},
	} {
		if status, out, errOut := cli(t, url, append([]string{"top", "-timeout", "5s"}, c.args...)...); status != 1 || out != "" || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: %d, %s, %s", name, status, out, errOut)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url  string
		args []string
		want string
	}{
		{"redis://127.0.0.1:1", []string{"-ca", ca}, "needs a rediss:// URL"},
		{url, []string{"-ca", empty}, "-ca (\"" + empty + "\") has no certificate"},
		{url, []string{"-ca", dir + "/no"}, "cannot be read"},
		{url, []string{"-cert", cert}, "needs -key"},
		{url, []string{"-key", key}, "needs -cert"},
		{url, []string{"-cert", cert, "-key", empty}, "cannot be used"},
	} {
		if status, _, errOut := cli(t, c.url, append([]string{"top", "-name", "api"}, c.args...)...); status != 2 || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: %d, %s", c.args, status, errOut)
		}
	}
}
