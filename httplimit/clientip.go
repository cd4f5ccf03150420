package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// The headers in which proxies write the client's address.
const (
	// XForwardedFor is the common one: most proxies append the address of the
	// connection that they received the request on.
	XForwardedFor = "X-Forwarded-For"
	// Forwarded is the standard header (RFC 7239).
	Forwarded = "Forwarded"
)

// IPConfig configures how the client's address is found, and which part of it is
// the key. The zero IPConfig trusts no proxy: the key is the address of the
// connection's peer.
type IPConfig struct {
	// TrustedProxies are the networks of your own proxies. They must contain no
	// other hosts, because every host in them can choose the client's address.
	// The header is read from its end. An entry counts if the host that wrote it
	// is a trusted proxy; the first address that is not one is the client. The
	// entries before it may be forged and are ignored. At most 64 entries and
	// 8 KB are read, including empty entries; after that, the last address read
	// is the client. The prefixes 0.0.0.0/0 and ::/0 are invalid: every client
	// could choose its key. Empty: no header is read.
	TrustedProxies []netip.Prefix
	// Header is the header that the proxies write: XForwardedFor or Forwarded. No
	// other header is read, because a proxy passes it on as the client sent it.
	// Empty: XForwardedFor.
	Header string
	// TrustUnix makes a peer without an address a trusted proxy. Such a peer is on
	// a Unix socket. False: its requests have no key.
	TrustUnix bool
	// IPv4Bits and IPv6Bits are the length of the prefix that is the key. A host
	// with IPv6 usually has a whole /64. Zero: 32 and 64.
	//
	// An IPv6 address may stand for a host with an IPv4 address. Its key is then
	// that of the IPv4 address, with IPv4Bits:
	//
	//	IPv4-mapped
	//	NAT64   64:ff9b::/96  all hosts share one /64
	//	6to4    2002::/16     each host has 65 536 times a /64
	//	Teredo  2001::/32     the clients of one server share one /64
	//
	// TrustedProxies are compared with the IPv6 address, except for IPv4-mapped
	// addresses.
	IPv4Bits, IPv6Bits int
	// NAT64 are prefixes of your own translators, besides 64:ff9b::/96. Prefixes
	// in 64:ff9b:1::/48 belong here too. Their length is /32, /40, /48, /56, /64
	// or /96 (RFC 6052); the position of the IPv4 address depends on it. Empty:
	// none.
	NAT64 []netip.Prefix
}

// Bounds on the part of IPConfig.Header that is read.
const (
	maxHeaderBytes   = 8 << 10
	maxHeaderEntries = 64
)

// ClientIP returns a KeyFunc with a key per client address. Its error (ErrInvalid)
// lists everything wrong with cfg.
func ClientIP(cfg IPConfig) (KeyFunc, error) {
	if cfg.Header == "" {
		cfg.Header = XForwardedFor
	}
	cfg.Header = http.CanonicalHeaderKey(cfg.Header)
	if cfg.IPv4Bits == 0 {
		cfg.IPv4Bits = 32
	}
	if cfg.IPv6Bits == 0 {
		cfg.IPv6Bits = 64
	}
	var bad hybridlimit.Violations
	if cfg.Header != XForwardedFor && cfg.Header != Forwarded {
		bad.Add("IPConfig.Header", cfg.Header, "must be X-Forwarded-For or Forwarded")
	}
	if cfg.IPv4Bits < 1 || cfg.IPv4Bits > 32 {
		bad.Add("IPConfig.IPv4Bits", cfg.IPv4Bits, "must be 1 to 32")
	}
	if cfg.IPv6Bits < 1 || cfg.IPv6Bits > 128 {
		bad.Add("IPConfig.IPv6Bits", cfg.IPv6Bits, "must be 1 to 128")
	}
	for i, p := range cfg.TrustedProxies {
		if !p.IsValid() || p.Bits() == 0 {
			bad.Add(fmt.Sprintf("IPConfig.TrustedProxies[%d]", i), p, "must be a network with a prefix of at least 1 bit")
		}
		if p.Addr().Is4In6() {
			bad.Add(fmt.Sprintf("IPConfig.TrustedProxies[%d]", i), p, "must be written as an IPv4 network")
		}
	}
	for i, p := range cfg.NAT64 {
		if !translates(p) {
			bad.Add(fmt.Sprintf("IPConfig.NAT64[%d]", i), p, "must be an IPv6 network of /32, /40, /48, /56, /64 or /96")
		}
	}
	if err := bad.Err("httplimit"); err != nil {
		return nil, err
	}
	cfg.TrustedProxies, cfg.NAT64 = slices.Clone(cfg.TrustedProxies), slices.Clone(cfg.NAT64)
	return cfg.key, nil
}

// PeerIP returns the KeyFunc of ClientIP for the zero IPConfig. It is for servers
// without a proxy: behind a proxy, all requests have the proxy's key.
func PeerIP() KeyFunc { return IPConfig{IPv4Bits: 32, IPv6Bits: 64}.key }

func (c IPConfig) key(r *http.Request) string {
	addr := peer(r)
	if !addr.IsValid() && !c.TrustUnix {
		return ""
	}
	if len(c.TrustedProxies) > 0 || !addr.IsValid() {
		addr = c.client(addr, r.Header[c.Header])
	}
	return c.keyOf(addr)
}

// peer returns the address of the connection. It is invalid if there is none.
func peer(r *http.Request) netip.Addr {
	if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return plain(ap.Addr())
	}
	addr, _ := netip.ParseAddr(r.RemoteAddr) // other middleware may have set an address without a port
	return plain(addr)
}

// plain returns the form of an address that is compared: IPv4 if it is IPv4-mapped,
// and without a zone, which has a meaning on one host only.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// client reads the header's lines from their end. addr is the host that wrote the
// next entry; the first is the peer. If a trusted proxy wrote an entry that is not
// an address, that proxy is the client, because nothing else is known. The same
// holds if the bounds on bytes or entries end the reading.
func (c IPConfig) client(addr netip.Addr, lines []string) netip.Addr {
	next := lastHop
	if c.Header == Forwarded {
		next = lastElement
	}
	bytes, entries := maxHeaderBytes, maxHeaderEntries // left to read
	for _, line := range slices.Backward(lines) {
		cut := len(line) > bytes
		if cut {
			line = line[len(line)-bytes:]
		}
		for rest := line; rest != ""; {
			if addr.IsValid() && !c.trusts(addr) {
				return addr
			}
			if entries--; entries < 0 {
				return addr
			}
			entry := rest
			var hop netip.Addr
			rest, hop = next(entry)
			switch {
			case cut && rest == "": // the entry may start before the part that is read
				return addr
			case hop.IsValid():
				addr = hop
			case strings.Trim(entry[len(rest):], ", \t") != "":
				return addr // an empty element, in contrast, is skipped (RFC 9110, section 5.6.1)
			}
		}
		if bytes -= len(line) + 1; bytes <= 0 {
			return addr
		}
	}
	return addr
}

func (c IPConfig) trusts(addr netip.Addr) bool {
	for _, p := range c.TrustedProxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// keyOf returns the key of an address: its network, or the network of the IPv4
// address that it stands for.
func (c IPConfig) keyOf(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	if v4, ok := embedded(addr, c.NAT64); ok {
		addr = v4
	}
	bits, all := c.IPv6Bits, 128
	if addr.Is4() {
		bits, all = c.IPv4Bits, 32
	}
	var room [64]byte
	b := append(room[:0], "ip:"...)
	if bits == all {
		return string(addr.AppendTo(b))
	}
	p, err := addr.Prefix(bits)
	if err != nil { // impossible: ClientIP checks the bits
		return ""
	}
	return string(p.AppendTo(b))
}
