package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

// secretFile writes a secret to a file and returns its name.
func secretFile(t *testing.T, secret hybridlimit.Secret) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(string(secret)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An operator finds the keys of httplimit by an address or by an API key, which is
// not among the arguments. This holds with and without hashed keys.
func TestInspectKeysOfHTTP(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	secret, hashKeys := hybridlimit.Secret(strings.Repeat("a", 40)), hybridlimit.Secret(strings.Repeat("h", 40))
	wide, err := httplimit.ClientIP(httplimit.IPConfig{IPv4Bits: 24, IPv6Bits: 48})
	if err != nil {
		t.Fatal(err)
	}
	from := func(addr string) *http.Request { return &http.Request{RemoteAddr: addr} }
	with := func(header, value string) *http.Request {
		return &http.Request{Header: http.Header{header: {value}}}
	}
	const apiKey = "k-12345 with blanks"
	for _, c := range []struct {
		name string
		key  string
		in   string
		args []string
	}{
		{"ipv4", httplimit.PeerIP()(from("203.0.113.7:4711")), "", []string{"-ip", "203.0.113.7"}},
		{"mapped", httplimit.PeerIP()(from("203.0.113.8:4711")), "", []string{"-ip", "::ffff:203.0.113.8"}},
		{"ipv6", httplimit.PeerIP()(from("[2001:db8:1:2::7]:4711")), "", []string{"-ip", "2001:db8:1:2:ffff::9"}},
		{"wide4", wide(from("198.51.100.7:4711")), "", []string{"-ip", "198.51.100.200", "-ipv4-bits", "24"}},
		{"wide6", wide(from("[2001:db8:7:2::7]:4711")), "", []string{"-ip", "2001:db8:7:ffff::9", "-ipv6-bits", "48"}},
		{"apikey", httplimit.APIKey("X-Api-Key", "")(with("X-Api-Key", apiKey)), apiKey + "\n", []string{"-api-key", "-"}},
		{"header", httplimit.APIKey("x-token", "")(with("X-Token", apiKey)), " " + apiKey + "\r\n", []string{"-api-key", "-", "-header", "x-token"}},
		{"keyed", httplimit.APIKey("X-Api-Key", secret)(with("X-Api-Key", apiKey)), apiKey, []string{"-api-key=-", "-secret-file", secretFile(t, secret)}},
	} {
		for _, hashed := range []hybridlimit.Secret{"", hashKeys} {
			cfg := global.Config{Name: "api", HashKeys: hashed}
			args := append([]string{"inspect", "-name", "api"}, c.args...)
			if hashed != "" {
				args = append(args, "-hash-secret-file", secretFile(t, hashed))
			}
			if status, _, errOut := cliWith(t, url, c.in, args...); status != 3 {
				t.Errorf("%s, before: %d, %s", c.name, status, errOut)
			}
			used(t, rdb, hourly, cfg, c.key, 3)
			status, out, errOut := cliWith(t, url, c.in, args...)
			if status != 0 || errOut != "" || !strings.Contains(out, "bucket had 7.0 units left") || strings.Contains(out, apiKey) {
				t.Errorf("%s: %d, %s, %s", c.name, status, out, errOut)
			}
		}
	}
}

// The digest in a log line leads to the key. For a hashed key it leads to the state
// under the hash, with and without the secret.
func TestInspectByDigest(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	url, rdb := urlOf(srv), srv.Client(t)
	secret := hybridlimit.Secret(strings.Repeat("h", 40))
	plain, hashed := lua.Names{}.Digest("api", "alice"), lua.Names{HashKeys: secret}.Digest("api", "alice")
	finds(t, url, []string{"inspect", "-name", "api", "-digest", plain}, "no key of \"api\" in Redis has this digest")
	for _, key := range []string{"alice", "bob", "carol"} {
		used(t, rdb, hourly, global.Config{Name: "api", TagBy: func(string) string { return "tenant" }}, key, 3)
		used(t, rdb, hourly, global.Config{Name: "web"}, key, 1)
	}
	expect(t, url, []string{"inspect", "-name", "api", "-digest", plain}, `api "alice": when last written, the bucket had 7.0 units left`, "key_digest  "+plain)
	expect(t, url, []string{"inspect", "-name", "api", "-limit", "1/h burst 10", "-digest", plain}, `api "alice": allowed because the bucket has 7 of 10 units left`)
	finds(t, url, []string{"inspect", "-name", "web", "-digest", plain}, "no key of \"web\" in Redis has this digest")
	used(t, rdb, hourly, global.Config{Name: "api", HashKeys: secret}, "alice", 4)
	for _, more := range [][]string{nil, {"-hash-secret-file", secretFile(t, secret)}} {
		out := expect(t, url, append([]string{"inspect", "-name", "api", "-digest", hashed, "-limit", "1/h burst 10"}, more...), "api, a hashed key: allowed because the bucket has 6 of 10 units left")
		if strings.Contains(out, "alice") {
			t.Errorf("the key is in %s", out)
		}
	}
	// A scan that ended early does not prove that the key is missing.
	pipe := rdb.Pipeline()
	for i := range 3000 {
		pipe.Set(t.Context(), "session:"+string(rune('a'+i%26))+strings.Repeat("x", i), "x", 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := lua.Names{}.Digest("api", "nobody")
	if status, out, errOut := cli(t, url, "inspect", "-name", "api", "-digest", other, "-rate", "100", "-for", "200ms"); status != 1 || out != "" || !strings.Contains(errOut, "the scan ended after -for 200ms at -rate 100") {
		t.Errorf("%d, %s, %s", status, out, errOut)
	}
}
