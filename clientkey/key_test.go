package clientkey_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/clientkey"
	"github.com/hybridlimit/hybridlimit/httplimit"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

const secret = hybridlimit.Secret("0123456789abcdef0123456789abcdef")

// Each function gives the key that the key function of httplimit gives for a request.
func TestKeysOfHTTP(t *testing.T) {
	text := rapid.StringN(1, 300, 600)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom([]hybridlimit.Secret{"", secret}).Draw(t, "secret")
		name, token := text.Draw(t, "name"), rapid.StringMatching(`[!-~]{1,40}`).Draw(t, "token")
		v4 := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "IPv4")
		v6 := append([]byte{0x20, 0x01, 0x0d, 0xb8}, rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "IPv6")...)
		addr, _ := netip.AddrFromSlice(rapid.SampledFrom([][]byte{v4, v6}).Draw(t, "address"))
		who := func(*http.Request) string { return name }
		mux := http.NewServeMux()
		mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
		r := httptest.NewRequest(http.MethodGet, "/users/7", nil)
		r.RemoteAddr = netip.AddrPortFrom(addr, 80).String()
		r.Header.Set("X-Api-Key", token)
		r.Header.Set("Authorization", "Bearer "+token)
		user, route := httplimit.User(s, who), httplimit.Pattern(mux)
		for what, pair := range map[string][2]string{
			"user":           {clientkey.User(s, name), user(r)},
			"address":        {clientkey.IP(addr), httplimit.PeerIP()(r)},
			"API key":        {clientkey.APIKey(s, "x-api-key", token), httplimit.APIKey("X-API-KEY", s)(r)},
			"token":          {clientkey.Bearer(s, token), httplimit.Bearer(s)(r)},
			"credentials":    {clientkey.Authorization(s, "bearer "+token), httplimit.Bearer(s)(r)},
			"route":          {clientkey.Route("GET /users/{id}"), route(r)},
			"user, route":    {clientkey.Join(clientkey.User(s, name), clientkey.Route("GET /users/{id}")), httplimit.Join(user, route)(r)},
			"all":            {clientkey.Everyone, httplimit.Everyone()(r)},
			"a part is \"\"": {clientkey.Join(clientkey.User(s, ""), clientkey.Everyone), ""},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %q, but httplimit has %q", what, pair[0], pair[1])
			}
		}
	})
}

// A name is in the key as it is, up to 256 bytes. A hashed name, be it long or with a
// secret, is of another kind, so that nobody can take the name that equals it.
func TestNamesOfUsers(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, want := range map[string]string{
		"": "", "alice": "user:alice", "a|b c\x00": "user:a|b c\x00", "#x": "user:#x", long: "user:" + long,
	} {
		if got := clientkey.User("", name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for what, key := range map[string]string{
		"of 257 bytes": clientkey.User("", long+"x"), "with a secret": clientkey.User(secret, "alice"), "both": clientkey.User(secret, long+"x"),
	} {
		hash, ok := strings.CutPrefix(key, "user#")
		if !ok || len(hash) != 22 {
			t.Errorf("%s: %q", what, key)
		}
		if got := clientkey.User("", "#"+hash); got == key {
			t.Errorf("%s: another user has the key %q", what, got)
		}
	}
	if clientkey.User("", long+"x") == clientkey.User("", long+"y") || clientkey.User(secret, "alice") == clientkey.User(secret, "bob") {
		t.Error("two users share a key")
	}
}

func TestKeysOfAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "ip:192.0.2.1", "::ffff:192.0.2.1": "ip:192.0.2.1", "2001:db8:1:2:3::4": "ip:2001:db8:1:2::/64", "fe80::1%eth0": "ip:fe80::/64",
	} {
		if got := clientkey.IP(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	v6 := netip.MustParseAddr("2001:db8:1:2:3::4")
	for bits, want := range map[int]string{48: "ip:2001:db8:1::/48", 128: "ip:2001:db8:1:2:3::4", 129: "", -1: ""} {
		if got := clientkey.Network(v6, bits); got != want {
			t.Errorf("%d bits: %q, want %q", bits, got, want)
		}
	}
	if got := clientkey.IP(netip.Addr{}); got != "" {
		t.Errorf("no address: %q", got)
	}
}
