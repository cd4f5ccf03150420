package server

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/tlstest"
)

// Connections to a Redis behind TLS. Each row names the certificate of Redis, and the
// settings of the program.
func TestRedisTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := tlstest.Certify(t, dir, "redis")
	other, otherKey := tlstest.Certify(t, dir, "other", "other.example")
	client, clientKey := tlstest.Certify(t, dir, "client")
	srv := redistest.New(t)
	for name, c := range map[string]struct {
		cert, key, clientCA string // of Redis
		args                []string
		env                 map[string]string
		want                string // in the error; empty: none
	}{
		"its authority":                    {cert, key, "", []string{"-redis-ca", cert}, nil, ""},
		"authorities of the system":        {cert, key, "", nil, nil, "unknown authority"},
		"another authority":                {cert, key, "", []string{"-redis-ca", other}, nil, "certificate"},
		"skip_verify":                      {cert, key, "", nil, map[string]string{"query": "?skip_verify=true"}, ""},
		"another name":                     {other, otherKey, "", []string{"-redis-ca", other}, nil, "not localhost"},
		"another name, not compared":       {other, otherKey, "", []string{"-redis-ca", other}, map[string]string{"REDIS_TLS": "1", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "1"}, ""},
		"another authority and name":       {other, otherKey, "", []string{"-redis-ca", cert}, map[string]string{"REDIS_TLS": "1", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "1"}, "certificate"},
		"a client certificate":             {cert, key, client, []string{"-redis-ca", cert, "-redis-cert", client, "-redis-key", clientKey}, nil, ""},
		"a client certificate is required": {cert, key, client, []string{"-redis-ca", cert}, nil, "certificate required"},
		"another client certificate":       {cert, key, client, []string{"-redis-ca", cert, "-redis-cert", other, "-redis-key", otherKey}, nil, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			url := "rediss://localhost:" + tlstest.Proxy(t, c.cert, c.key, c.clientCA, srv.Addr()) + c.env["query"]
			s, err := ParseFlags(append([]string{"-config", dir, "-redis", url}, c.args...), func(name string) string { return c.env[name] }, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			rdb, end, err := s.Redis.open(io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			err = rdb.Ping(t.Context()).Err()
			for began := time.Now(); c.want == "" && err != nil && time.Since(began) < 30*time.Second; { // a time-out of a busy machine
				err = rdb.Ping(t.Context()).Err()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Each server of a cluster is compared with its own address, and not with that of the last
// URL.
func TestRedisTLSOfACluster(t *testing.T) {
	o, err := Redis{URL: "rediss://a:1,rediss://b:2"}.options()
	if err != nil || o.TLSConfig == nil || o.TLSConfig.ServerName != "" {
		t.Errorf("%+v, %v", o, err)
	}
}

// The user of the sentinels is kept.
func TestSentinelUser(t *testing.T) {
	o, err := Redis{URL: "m,s:1", Type: "sentinel", sentinelAuth: "u:p"}.options()
	if err != nil || o.SentinelUsername != "u" || o.SentinelPassword != "p" {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestRedisTLSFlags(t *testing.T) {
	dir := t.TempDir()
	cert, key := tlstest.Certify(t, dir, "redis")
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"need a rediss:// URL":     {"-redis", "localhost:1", "-redis-ca", cert},
		"-redis (":                 {"-redis", "http://x", "-redis-ca", cert},
		") need a rediss:// URL":   {"-redis-ca", cert}, // without -redis
		"has no certificate":       {"-redis", "rediss://localhost:1", "-redis-ca", empty},
		"no such file":             {"-redis", "rediss://localhost:1", "-redis-ca", dir + "/none"},
		"must be set together":     {"-redis", "rediss://localhost:1", "-redis-key", key},
		"cannot be used with":      {"-redis", "rediss://localhost:1", "-redis-cert", cert, "-redis-key", empty},
		"-tls-client-name (\"a\")": {"-tls-client-name", "a"},
	} {
		_, err := ParseFlags(append([]string{"-config", dir}, args...), func(string) string { return "" }, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
