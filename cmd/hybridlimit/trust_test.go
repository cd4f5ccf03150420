package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/tlstest"
)

// A Redis with a certificate of a private authority, which requires a client
// certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, secret := tlstest.Certify(t, dir, "redis")
	cert, key := tlstest.Certify(t, dir, "operator")
	srv := redistest.New(t)
	used(t, srv.Client(t), hourly, global.Config{Name: "api"}, "alice", 3)
	url := "rediss://localhost:" + tlstest.Proxy(t, ca, secret, cert, srv.Addr())
	whole := []string{"-name", "api", "-tls-ca", ca, "-tls-cert", cert, "-tls-key", key}
	expect(t, url, append(append([]string{"inspect"}, whole...), "alice"), "bucket had 7.0 units left")
	expect(t, url, append([]string{"top"}, whole...), "1 keys of api, complete")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an authority that nobody knows": {[]string{"-name", "api", "-tls-cert", cert, "-tls-key", key}, "certificate"},
		"without one's own":              {[]string{"-name", "api", "-tls-ca", ca}, "certificate"},
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
		{"redis://127.0.0.1:1", []string{"-tls-ca", ca}, "needs a rediss:// URL"},
		{url, []string{"-tls-ca", empty}, "-tls-ca (\"" + empty + "\") has no certificate"},
		{url, []string{"-tls-ca", dir + "/no"}, "cannot be read"},
		{url, []string{"-tls-cert", cert}, "needs -tls-key"},
		{url, []string{"-tls-key", key}, "needs -tls-cert"},
		{url, []string{"-tls-cert", cert, "-tls-key", empty}, "cannot be used"},
	} {
		if status, _, errOut := cli(t, c.url, append([]string{"top", "-name", "api"}, c.args...)...); status != 2 || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: %d, %s", c.args, status, errOut)
		}
	}
}
