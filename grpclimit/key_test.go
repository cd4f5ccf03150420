package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/grpclimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/limittest"
)

const secret = hybridlimit.Secret("0123456789abcdef0123456789abcdef")

var ourProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}

func clientIP(t testing.TB, cfg grpclimit.IPConfig) grpclimit.KeyFunc {
	t.Helper()
	key, err := grpclimit.ClientIP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// An HTTP server and a gRPC server have the same key for the same client.
func TestKeysAreThoseOfHTTP(t *testing.T) {
	httpIP := func(cfg httplimit.IPConfig) httplimit.KeyFunc {
		key, err := httplimit.ClientIP(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	behind, standard := httplimit.IPConfig{TrustedProxies: ourProxies}, httplimit.IPConfig{TrustedProxies: ourProxies, Header: "forwarded", IPv6Bits: 48}
	subject := func(context.Context) string { return "ann" }
	mux := http.NewServeMux()
	mux.HandleFunc("/test.Service/Method", func(http.ResponseWriter, *http.Request) {})
	for name, tc := range map[string]struct {
		grpc   grpclimit.KeyFunc
		http   httplimit.KeyFunc
		peer   string
		header [2]string
		want   string // "": any
	}{
		"IPv4":              {grpclimit.Peer(), httplimit.PeerIP(), "203.0.113.7", [2]string{}, "ip:203.0.113.7"},
		"IPv6":              {grpclimit.Peer(), httplimit.PeerIP(), "2001:db8:1:2::7", [2]string{}, "ip:2001:db8:1:2::/64"},
		"NAT64":             {grpclimit.Peer(), httplimit.PeerIP(), "64:ff9b::203.0.113.7", [2]string{}, "ip:203.0.113.7"},
		"not trusted":       {grpclimit.Peer(), httplimit.PeerIP(), "10.0.0.1", [2]string{"X-Forwarded-For", "192.0.2.1"}, "ip:10.0.0.1"},
		"X-Forwarded-For":   {clientIP(t, behind), httpIP(behind), "10.0.0.1", [2]string{"X-Forwarded-For", "6.6.6.6, 192.0.2.1, 10.0.0.2"}, "ip:192.0.2.1"},
		"Forwarded":         {clientIP(t, standard), httpIP(standard), "10.0.0.1", [2]string{"Forwarded", `for="[2001:db8:1:2::7]:80"`}, "ip:2001:db8:1::/48"},
		"API key":           {grpclimit.Metadata("x-api-key", ""), httplimit.APIKey("X-Api-Key", ""), "10.0.0.1", [2]string{"X-Api-Key", "abc"}, ""},
		"API key, upper":    {grpclimit.Metadata("X-API-KEY", secret), httplimit.APIKey("x-api-key", secret), "10.0.0.1", [2]string{"X-Api-Key", "abc"}, ""},
		"empty API key":     {grpclimit.Metadata("x-api-key", ""), httplimit.APIKey("X-Api-Key", ""), "10.0.0.1", [2]string{"X-Api-Key", ""}, ""},
		"token":             {grpclimit.Bearer(secret), httplimit.Bearer(secret), "10.0.0.1", [2]string{"Authorization", "bearer abc"}, ""},
		"malformed token":   {grpclimit.Bearer(""), httplimit.Bearer(""), "10.0.0.1", [2]string{"Authorization", "Basic abc"}, "bearer:malformed"},
		"user":              {grpclimit.User(secret, subject), httplimit.User(secret, func(*http.Request) string { return "ann" }), "10.0.0.1", [2]string{}, ""},
		"method":            {grpclimit.Method(), httplimit.Pattern(mux), "10.0.0.1", [2]string{}, "route:/test.Service/Method"},
		"everyone":          {grpclimit.Everyone(), httplimit.Everyone(), "10.0.0.1", [2]string{}, "*"},
		"joined":            {grpclimit.Join(grpclimit.Peer(), fixed(`a|b\`)), httplimit.Join(httplimit.PeerIP(), func(*http.Request) string { return `a|b\` }), "10.0.0.1", [2]string{}, `ip:10.0.0.1|a\|b\\`},
		"joined, one empty": {grpclimit.Join(grpclimit.Peer(), fixed("")), httplimit.Join(httplimit.PeerIP(), func(*http.Request) string { return "" }), "10.0.0.1", [2]string{}, ""},
	} {
		r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/test.Service/Method"}, RemoteAddr: net.JoinHostPort(tc.peer, "4711"), Header: http.Header{}}
		ctx := from(t.Context(), tcp(tc.peer))
		if tc.header[0] != "" {
			r.Header.Set(tc.header[0], tc.header[1])
			ctx = from(t.Context(), tcp(tc.peer), strings.ToLower(tc.header[0]), tc.header[1])
		}
		got, want := tc.grpc(ctx, grpclimit.Call{Method: "/test.Service/Method"}), tc.http(r)
		if got != want || tc.want != "" && got != tc.want || got == "" && name != "joined, one empty" {
			t.Errorf("%s: %q, of HTTP %q, want %q", name, got, want, tc.want)
		}
	}
}

// Keys of calls without an address, without metadata, and of unknown methods.
func TestKeysOfOtherCalls(t *testing.T) {
	unix := clientIP(t, grpclimit.IPConfig{TrustUnix: true})
	yes := func(context.Context, grpclimit.Call) bool { return true }
	no := func(context.Context, grpclimit.Call) bool { return false }
	call := grpclimit.Call{Method: "/test.Service/Method"}
	socket := &net.UnixAddr{Name: "@", Net: "unix"}
	for name, tc := range map[string]struct {
		key  grpclimit.KeyFunc
		ctx  context.Context
		call grpclimit.Call
		want string
	}{
		"no peer":               {grpclimit.Peer(), t.Context(), call, ""},
		"a peer without addr":   {grpclimit.Peer(), from(t.Context(), nil), call, ""},
		"a nil TCP address":     {grpclimit.Peer(), from(t.Context(), (*net.TCPAddr)(nil)), call, ""},
		"an empty TCP address":  {grpclimit.Peer(), from(t.Context(), &net.TCPAddr{}), call, ""},
		"a mapped TCP address":  {grpclimit.Peer(), from(t.Context(), tcp("::ffff:192.0.2.1")), call, "ip:192.0.2.1"},
		"an address in a text":  {grpclimit.Peer(), from(t.Context(), textAddr("192.0.2.1:80")), call, "ip:192.0.2.1"},
		"a zone":                {grpclimit.Peer(), from(t.Context(), textAddr("[fe80::1%eth0]:80")), call, "ip:fe80::/64"},
		"Unix socket":           {grpclimit.Peer(), from(t.Context(), socket), call, ""},
		"Unix socket, trusted":  {unix, from(t.Context(), socket, "x-forwarded-for", "192.0.2.1"), call, "ip:192.0.2.1"},
		"several lines":         {clientIP(t, grpclimit.IPConfig{TrustedProxies: ourProxies}), from(t.Context(), tcp("10.0.0.1"), "x-forwarded-for", "6.6.6.6", "x-forwarded-for", "192.0.2.1"), call, "ip:192.0.2.1"},
		"a huge forged header":  {clientIP(t, grpclimit.IPConfig{TrustedProxies: ourProxies}), from(t.Context(), tcp("10.0.0.1"), "x-forwarded-for", strings.Repeat("1.1.1.1,", 1<<17)+"192.0.2.1"), call, "ip:192.0.2.1"},
		"100 000 empty entries": {clientIP(t, grpclimit.IPConfig{TrustedProxies: ourProxies}), metadata.NewIncomingContext(from(t.Context(), tcp("10.0.0.1")), metadata.MD{"x-forwarded-for": make([]string, 100_000)}), call, "ip:10.0.0.1"},
		"no metadata":           {grpclimit.Metadata("x-api-key", ""), t.Context(), call, ""},
		"no token":              {grpclimit.Bearer(""), t.Context(), call, ""},
		"no user":               {grpclimit.User("", func(context.Context) string { return "" }), t.Context(), call, ""},
		"no method":             {grpclimit.Method(), t.Context(), grpclimit.Call{}, ""},
		"unknown method":        {grpclimit.Method(), t.Context(), grpclimit.Call{Method: "/made/Up", Unregistered: true}, "route:unmatched"},
		"first":                 {grpclimit.First(fixed(""), fixed("b"), fixed("c")), t.Context(), call, "b"},
		"first of none":         {grpclimit.First(fixed(""), fixed("")), t.Context(), call, ""},
		"when":                  {grpclimit.When(yes, fixed("a")), t.Context(), call, "a"},
		"when not":              {grpclimit.When(no, fixed("a")), t.Context(), call, ""},
	} {
		if got := tc.key(tc.ctx, tc.call); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A huge value has a short key, and the first of several values counts.
func TestMetadataOfAnySize(t *testing.T) {
	key := grpclimit.Metadata("x-api-key", "")
	huge := key(from(t.Context(), nil, "x-api-key", strings.Repeat("x", 1<<20)), grpclimit.Call{})
	if len(huge) > 40 || huge == key(from(t.Context(), nil, "x-api-key", "x"), grpclimit.Call{}) {
		t.Errorf("%q", huge)
	}
	if a, b := key(from(t.Context(), nil, "x-api-key", "a", "x-api-key", "b"), grpclimit.Call{}), key(from(t.Context(), nil, "x-api-key", "a"), grpclimit.Call{}); a != b || a == "" {
		t.Errorf("%q, %q", a, b)
	}
}

// A stream of an unknown method is told apart by its missing service.
func TestUnregisteredStreams(t *testing.T) {
	recorder := limittest.Record(limittest.AllowAll())
	intercept, err := grpclimit.StreamServer(grpclimit.Config{}, grpclimit.Limit{Limiter: recorder, Key: grpclimit.Method()})
	if err != nil {
		t.Fatal(err)
	}
	for _, srv := range []any{nil, "service"} {
		if err := intercept(srv, &messages{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/B"}, func(any, grpc.ServerStream) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	if got := recorder.Keys(); len(got) != 2 || got[0] != "route:unmatched" || got[1] != "route:/a/B" {
		t.Error(got)
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	_, err := grpclimit.ClientIP(grpclimit.IPConfig{Header: "X-Real-Ip", IPv4Bits: 33, TrustedProxies: []netip.Prefix{{}}})
	if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.HasPrefix(err.Error(), "grpclimit: ") || strings.Count(err.Error(), ";") != 2 {
		t.Error(err)
	}
	for name, make := range map[string]func(){
		"Metadata: name":   func() { grpclimit.Metadata("", "") },
		"Metadata: secret": func() { grpclimit.Metadata("a", "short") },
		"Bearer: secret":   func() { grpclimit.Bearer("short") },
		"User: of":         func() { grpclimit.User("", nil) },
		"Join: keys":       func() { grpclimit.Join() },
		"Join: keys[1]":    func() { grpclimit.Join(fixed("a"), nil) },
		"First: keys[0]":   func() { grpclimit.First(nil) },
		"When: condition":  func() { grpclimit.When(nil, fixed("a")) },
		"When: key":        func() { grpclimit.When(func(context.Context, grpclimit.Call) bool { return true }, nil) },
	} {
		func() {
			defer func() {
				err, _ := recover().(error)
				if !errors.Is(err, hybridlimit.ErrInvalid) || !strings.HasPrefix(err.Error(), "grpclimit: "+name) {
					t.Errorf("%s: %v", name, err)
				}
			}()
			make()
		}()
	}
}

// textAddr is an address of another kind of connection.
type textAddr string

func (textAddr) Network() string  { return "text" }
func (a textAddr) String() string { return string(a) }
