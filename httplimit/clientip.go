package httplimit

import (
	"net/http"
	"net/netip"

	"github.com/hybridlimit/hybridlimit/internal/clientaddr"
)

// The headers in which proxies write the client's address.
const (
	// XForwardedFor is the common one: most proxies append the address of the connection that they received the request
	// on.
	XForwardedFor = clientaddr.XForwardedFor
	// Forwarded is the standard header (RFC 7239).
	Forwarded = clientaddr.Forwarded
)

// IPConfig configures how the client's address is found, and which part of it is the key. The zero IPConfig trusts no
// proxy: the key is the address of the connection's peer.
type IPConfig struct {
	// TrustedProxies are the networks of your own proxies. They must contain no other hosts, because every host in them
	// can choose the client's address. The header is read from its end. An entry counts if the host that wrote it is a
	// trusted proxy; the first address that is not one is the client. The entries before it may be forged and are
	// ignored. At most 64 entries and 8 KB are read, including empty entries; after that, the last address read is the
	// client. The prefixes 0.0.0.0/0 and ::/0 are invalid: every client could choose its key. Empty: no header is read.
	TrustedProxies []netip.Prefix
	// Header is the header that the proxies write: XForwardedFor or Forwarded. No other header is read, because a proxy
	// passes it on as the client sent it. Empty: XForwardedFor.
	Header string
	// TrustUnix makes a peer without an address a trusted proxy. Such a peer is on a Unix socket. False: its requests
	// have no key.
	TrustUnix bool
	// IPv4Bits and IPv6Bits are the length of the prefix that is the key. A host with IPv6 usually has a whole /64.
	// Zero: 32 and 64.
	//
	// An IPv6 address may stand for a host with an IPv4 address. Its key is then that of the IPv4 address, with
	// IPv4Bits:
	//
	//	IPv4-mapped
	//	NAT64   64:ff9b::/96  all hosts share one /64
	//	6to4    2002::/16     each host has 65 536 times a /64
	//	Teredo  2001::/32     the clients of one server share one /64
	//
	// The IPv4 address of Teredo is that of the client's NAT. A key of the whole address would give a client a key for
	// each Teredo server.
	//
	// TrustedProxies are compared with the IPv6 address, except for IPv4-mapped addresses.
	IPv4Bits, IPv6Bits int
	// NAT64 are prefixes of your own translators, besides 64:ff9b::/96. Prefixes in 64:ff9b:1::/48 belong here too.
	// Their length is /32, /40, /48, /56, /64 or /96 (RFC 6052); the position of the IPv4 address depends on it. Empty:
	// none.
	NAT64 []netip.Prefix
}

// ClientIP returns a KeyFunc with a key per client address. Its error (ErrInvalid) lists everything wrong with cfg.
func ClientIP(cfg IPConfig) (KeyFunc, error) {
	cfg.Header = http.CanonicalHeaderKey(cfg.Header)
	client, err := clientaddr.Address(cfg).Checked("httplimit")
	if err != nil {
		return nil, err
	}
	return keyOf(&client), nil
}

// PeerIP returns the KeyFunc of ClientIP for the zero IPConfig. It is for servers without a proxy: behind a proxy, all
// requests have the proxy's key.
func PeerIP() KeyFunc { return keyOf(&clientaddr.Peer) }

func keyOf(client *clientaddr.Address) KeyFunc {
	return func(r *http.Request) string {
		return client.Key(clientaddr.PeerAddr(r.RemoteAddr), r.Header[client.Header])
	}
}
