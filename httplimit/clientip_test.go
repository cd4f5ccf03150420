package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
)

var ourProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48")}

func clientIP(t testing.TB, cfg httplimit.IPConfig) httplimit.KeyFunc {
	t.Helper()
	key, err := httplimit.ClientIP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// nat64 is the configuration of a server behind a translator.
func nat64(prefix string) httplimit.IPConfig {
	return httplimit.IPConfig{TrustedProxies: ourProxies, NAT64: []netip.Prefix{netip.MustParsePrefix(prefix)}}
}

func TestClientIP(t *testing.T) {
	xff := httplimit.IPConfig{TrustedProxies: ourProxies}
	fwd := httplimit.IPConfig{TrustedProxies: ourProxies, Header: "forwarded"}
	unix := httplimit.IPConfig{TrustedProxies: ourProxies, TrustUnix: true}
	for _, tc := range []struct {
		name  string
		cfg   httplimit.IPConfig
		peer  string
		lines []string
		want  string
	}{
		{"no proxy", xff, "192.0.2.1:1234", nil, "ip:192.0.2.1"},
		{"a stranger's header", xff, "192.0.2.1:1234", []string{"198.51.100.7"}, "ip:192.0.2.1"},
		{"nobody is trusted", httplimit.IPConfig{}, "10.0.0.1:1234", []string{"198.51.100.7"}, "ip:10.0.0.1"},
		{"one proxy", xff, "10.0.0.1:1", []string{"192.0.2.1"}, "ip:192.0.2.1"},
		{"a proxy, with a port", xff, "10.0.0.1:1", []string{"192.0.2.1:5678"}, "ip:192.0.2.1"},
		{"a lie before the truth", xff, "10.0.0.1:1", []string{"198.51.100.7, 192.0.2.1"}, "ip:192.0.2.1"},
		{"a lie that claims to be a proxy", xff, "10.0.0.1:1", []string{"198.51.100.7, 10.0.0.9, 192.0.2.1"}, "ip:192.0.2.1"},
		{"two proxies", xff, "10.0.0.1:1", []string{"198.51.100.7, 192.0.2.1, 10.0.0.2"}, "ip:192.0.2.1"},
		{"two proxies, two lines", xff, "10.0.0.1:1", []string{"192.0.2.1", "10.0.0.2"}, "ip:192.0.2.1"},
		{"nobody but proxies", xff, "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "ip:10.0.0.3"},
		{"garbage", xff, "10.0.0.1:1", []string{"192.0.2.1, what, 10.0.0.2"}, "ip:10.0.0.2"},
		{"an empty entry at the end", xff, "10.0.0.1:1", []string{"192.0.2.1,"}, "ip:192.0.2.1"},
		{"empty entries between", xff, "10.0.0.1:1", []string{"198.51.100.7, 192.0.2.1, ,\t,10.0.0.2 , "}, "ip:192.0.2.1"},
		{"nothing but empty entries", xff, "10.0.0.1:1", []string{" , ,,"}, "ip:10.0.0.1"},
		{"Forwarded, empty elements", fwd, "10.0.0.1:1", []string{`for=198.51.100.7, for=192.0.2.1,, ,`}, "ip:192.0.2.1"},
		{"no header", xff, "10.0.0.1:1", nil, "ip:10.0.0.1"},
		{"IPv6 by /64", xff, "[2001:db8:1:2:3:4:5:6]:1", nil, "ip:2001:db8:1:2::/64"},
		{"IPv6 through IPv6", xff, "[2001:db8:ffff::1]:1", []string{"2001:db8:1:2:3:4:5:6"}, "ip:2001:db8:1:2::/64"},
		{"IPv6 with brackets and a port", xff, "10.0.0.1:1", []string{"[2001:db8:1:2:3::6]:99"}, "ip:2001:db8:1:2::/64"},
		{"IPv6 by /128", httplimit.IPConfig{IPv6Bits: 128}, "[2001:db8::6]:1", nil, "ip:2001:db8::6"},
		{"IPv6 by /48", httplimit.IPConfig{IPv6Bits: 48}, "[2001:db8:1:2::6]:1", nil, "ip:2001:db8:1::/48"},
		{"IPv4 by /24", httplimit.IPConfig{IPv4Bits: 24}, "192.0.2.77:1", nil, "ip:192.0.2.0/24"},
		{"a zone", xff, "[fe80::1%eth0]:1", nil, "ip:fe80::/64"},
		{"IPv4 in IPv6", xff, "[::ffff:10.0.0.1]:1", []string{"::ffff:192.0.2.1"}, "ip:192.0.2.1"},
		{"NAT64", xff, "[64:ff9b::192.0.2.1]:1", nil, "ip:192.0.2.1"},
		{"NAT64, another host", xff, "10.0.0.1:1", []string{"64:ff9b::198.51.100.7"}, "ip:198.51.100.7"},
		{"NAT64 in brackets, with a port", xff, "10.0.0.1:1", []string{"[64:ff9b::c000:201]:80"}, "ip:192.0.2.1"},
		{"NAT64 by /24", httplimit.IPConfig{IPv4Bits: 24}, "[64:ff9b::192.0.2.77]:1", nil, "ip:192.0.2.0/24"},
		{"NAT64, whatever IPv6Bits", httplimit.IPConfig{IPv6Bits: 128}, "[64:ff9b::192.0.2.1]:1", nil, "ip:192.0.2.1"},
		{"NAT64 of a proxy's address is no proxy", xff, "[64:ff9b::10.0.0.1]:1", []string{"192.0.2.1"}, "ip:10.0.0.1"},
		{"outside of the well-known prefix", xff, "[64:ff9b:0:1::1]:1", nil, "ip:64:ff9b:0:1::/64"},
		{"a translator that nobody names", xff, "[64:ff9b:1::192.0.2.1]:1", nil, "ip:64:ff9b:1::/64"},
		{"a translator by /96", nat64("64:ff9b:1::/96"), "[64:ff9b:1::192.0.2.1]:1", nil, "ip:192.0.2.1"},
		{"a translator by /96, another network", nat64("64:ff9b:1::/96"), "[64:ff9b:1:1::192.0.2.1]:1", nil, "ip:64:ff9b:1:1::/64"},
		{"a translator by /64", nat64("2001:db8:122:344::/64"), "[2001:db8:122:344:c0:2:2100::]:1", nil, "ip:192.0.2.33"},
		{"a translator by /56", nat64("2001:db8:122:300::/56"), "[2001:db8:122:3c0:0:221::]:1", nil, "ip:192.0.2.33"},
		{"a translator by /48", nat64("2001:db8:122::/48"), "[2001:db8:122:c000:2:2100::]:1", nil, "ip:192.0.2.33"},
		{"a translator by /40", nat64("2001:db8:100::/40"), "[2001:db8:1c0:2:21::]:1", nil, "ip:192.0.2.33"},
		{"a translator by /32", nat64("2001:db8::/32"), "[2001:db8:c000:221::]:1", nil, "ip:192.0.2.33"},
		{"6to4", xff, "[2002:c000:201::1]:1", nil, "ip:192.0.2.1"},
		{"6to4, another network of the host", xff, "10.0.0.1:1", []string{"2002:c000:201:ffff::9"}, "ip:192.0.2.1"},
		{"Teredo", xff, "[2001:0:4136:e378:8000:63bf:3fff:fdd2]:1", nil, "ip:192.0.2.45"},
		{"Teredo, another server", xff, "[2001:0:c633:6407:0:0:3fff:fdd2]:1", nil, "ip:192.0.2.45"},
		{"no address", xff, "@", []string{"192.0.2.1"}, ""},
		{"a Unix socket", unix, "@", []string{"198.51.100.7, 192.0.2.1"}, "ip:192.0.2.1"},
		{"a Unix socket without a header", unix, "", nil, ""},
		{"Forwarded", fwd, "10.0.0.1:1", []string{"for=192.0.2.1"}, "ip:192.0.2.1"},
		{"Forwarded in full", fwd, "10.0.0.1:1", []string{`for=198.51.100.7, FOR="192.0.2.1:80" ;proto=https;by=10.0.0.1;host="a,b;c=\"d\""`}, "ip:192.0.2.1"},
		{"Forwarded, IPv6", fwd, "10.0.0.1:1", []string{`proto=http;for="[2001:db8:1:2::9]:4711"`}, "ip:2001:db8:1:2::/64"},
		{"Forwarded, two proxies", fwd, "10.0.0.1:1", []string{`for=192.0.2.1;proto=http, for=10.0.0.2`}, "ip:192.0.2.1"},
		{"Forwarded, a mark left open", fwd, "10.0.0.1:1", []string{`for="198.51.100.7, for=192.0.2.1`}, "ip:192.0.2.1"},
		{"Forwarded, a mark left open, quoted", fwd, "10.0.0.1:1", []string{`host="x\, for="192.0.2.1:5"`}, "ip:192.0.2.1"},
		{"Forwarded, unknown", fwd, "10.0.0.1:1", []string{`for=192.0.2.1, for=unknown`}, "ip:10.0.0.1"},
		{"Forwarded, obfuscated", fwd, "10.0.0.1:1", []string{`for=_hidden`}, "ip:10.0.0.1"},
		{"Forwarded, nothing of who", fwd, "10.0.0.1:1", []string{`proto=https`}, "ip:10.0.0.1"},
		{"Forwarded, for twice", fwd, "10.0.0.1:1", []string{`for=192.0.2.1;for=192.0.2.2`}, "ip:10.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = tc.peer
			header := httplimit.XForwardedFor
			other := httplimit.Forwarded
			if tc.cfg.Header != "" {
				header, other = other, header
			}
			r.Header[header] = tc.lines
			r.Header.Set(other, "for=203.0.113.66, 203.0.113.66") // this header is not read
			if got := clientIP(t, tc.cfg)(r); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// A client has one key, which no other client has: with any headers, and on any way
// through the trusted proxies.
func TestLiesDoNotMoveTheKey(t *testing.T) {
	text := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune(`for=";\,. :[]10_unkow2db8f`)), 0, 30, -1),
		rapid.SampledFrom([]string{"", "10.0.0.1", "for=10.0.0.1", `for="10.0.0.1`, `"`, `\"`, "10.0.0.1,", `for="[2001:db8:ffff::1]:1"`, "unknown", ",,,", "for=;for="}),
	)
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.SampledFrom([]string{httplimit.XForwardedFor, httplimit.Forwarded}).Draw(t, "header")
		client := rapid.SampledFrom([]string{"192.0.2.1", "198.51.100.9", "2001:db8:5::1"}).Draw(t, "client")
		proxies := rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.1", "10.9.9.9", "2001:db8:ffff::7"}), 1, 4).Draw(t, "proxies")
		lies := rapid.SliceOfN(text, 0, 4).Draw(t, "lies")
		key, err := httplimit.ClientIP(httplimit.IPConfig{TrustedProxies: ourProxies, Header: header})
		if err != nil {
			t.Fatal(err)
		}
		lines := append([]string(nil), lies...)
		caller := client
		for _, p := range proxies {
			entry := caller
			if header == httplimit.Forwarded {
				entry = entryOf(t, caller)
			} else if rapid.Bool().Draw(t, "port") {
				entry = netip.AddrPortFrom(netip.MustParseAddr(caller), 4711).String()
			}
			if len(lines) == 0 || rapid.Bool().Draw(t, "own line") {
				lines = append(lines, entry)
			} else {
				lines[len(lines)-1] += rapid.SampledFrom([]string{",", ", "}).Draw(t, "comma") + entry
			}
			caller = p
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(caller), 1).String()
		r.Header[header] = lines
		want := "ip:" + client
		if strings.Contains(client, ":") {
			want = "ip:2001:db8:5::/64"
		}
		if got := key(r); got != want {
			t.Errorf("%s %q from %s: %q, want %q", header, lines, r.RemoteAddr, got, want)
		}
	})
}

// entryOf returns the element that a proxy writes for its peer.
func entryOf(t *rapid.T, caller string) string {
	node := caller
	if strings.Contains(caller, ":") {
		node = `"[` + caller + `]"`
	} else if rapid.Bool().Draw(t, "quoted") {
		node = `"` + caller + `:80"`
	}
	before := rapid.SampledFrom([]string{"", "by=10.0.0.1;", "proto=https;", `host="a,\"b;for=1.1.1.1";`}).Draw(t, "before")
	after := rapid.SampledFrom([]string{"", ";proto=http", `;host="x\\"`, `;ext="for=2.2.2.2,"`}).Draw(t, "after")
	return fmt.Sprintf("%sfor=%s%s", before, node, after)
}

func TestIPConfigIsChecked(t *testing.T) {
	_, err := httplimit.ClientIP(httplimit.IPConfig{
		NAT64:  []netip.Prefix{{}, netip.MustParsePrefix("64:ff9b:1::/52"), netip.MustParsePrefix("10.0.0.0/32"), netip.MustParsePrefix("::ffff:0.0.0.0/96")},
		Header: "X-Real-Ip", IPv4Bits: 33, IPv6Bits: -1,
		TrustedProxies: []netip.Prefix{{}, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::ffff:10.0.0.0/104")},
	})
	if !errors.Is(err, hybridlimit.ErrInvalid) {
		t.Fatalf("%v", err)
	}
	for _, field := range []string{"IPConfig.Header", "IPConfig.IPv4Bits", "IPConfig.IPv6Bits", "TrustedProxies[0]", "TrustedProxies[1]", "TrustedProxies[2]", "NAT64[0]", "NAT64[1]", "NAT64[2]", "NAT64[3]"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
}
