package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit"
)

// The headers that proxies tell addresses in.
const (
	// XForwardedFor is what most proxies append the address to that they were
	// called from.
	XForwardedFor = "X-Forwarded-For"
	// Forwarded is the standard one (RFC 7239).
	Forwarded = "Forwarded"
)

// IPConfig is how the client's address is found and what of it is the key. The
// zero IPConfig trusts nobody: the key is of the peer of the connection.
type IPConfig struct {
	// TrustedProxies are the networks of your own proxies, and of nobody else:
	// every host in them may write who a request is from. The header is
	// believed as far as they have written it: it is read from its end, as long
	// as the address that wrote the entry is one of them; the first that is not
	// is the client. Whatever the client has put before that is not looked at.
	// At most 64 entries and 8 KB are read, empty entries included; the last
	// address before that is then the client. Prefixes as wide as 0.0.0.0/0 are
	// refused: everybody could then choose the key. Empty: no header is read.
	TrustedProxies []netip.Prefix
	// Header is the one that the proxies write, XForwardedFor or Forwarded. Only
	// this one is read, because a proxy passes on the others as the client has
	// sent them. Empty: XForwardedFor.
	Header string
	// TrustUnix says that a peer without an address, which is one on a Unix
	// socket, is a proxy of yours. False: such a request has no key.
	TrustUnix bool
	// IPv4Bits and IPv6Bits are how much of an address is the key. Whoever has
	// an IPv6 address has a whole network of them, mostly a /64. Zero: 32 and 64.
	//
	// An IPv6 address that stands for a host with an IPv4 address has the key of
	// the latter, with IPv4Bits: those of NAT64 (64:ff9b::/96), where all hosts
	// share one /64; of 6to4 (2002::/16), where each has 65 536; of Teredo
	// (2001::/32), where the clients of one server share one; and IPv4-mapped
	// ones. TrustedProxies are compared with the address as it is, but for the
	// last kind.
	IPv4Bits, IPv6Bits int
	// NAT64 are the prefixes of translators of yours, besides 64:ff9b::/96: of
	// /32, /40, /48, /56, /64 or /96 (RFC 6052), such as one out of
	// 64:ff9b:1::/48, of which the address does not tell where the other one
	// stands. Empty: none.
	NAT64 []netip.Prefix
}

// The most that is read of TrustedProxies' header.
const (
	maxHeaderBytes   = 8 << 10
	maxHeaderEntries = 64
)

// ClientIP is a key for each client's address. It fails with all that is wrong
// with cfg at once (ErrInvalid).
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
			bad.Add(fmt.Sprintf("IPConfig.TrustedProxies[%d]", i), p, "must be a network, and not everybody's")
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

// PeerIP is ClientIP of the zero IPConfig: for servers without a proxy before
// them. Behind one, all requests would have the proxy's key.
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

// peer is the address of the connection; invalid where there is none.
func peer(r *http.Request) netip.Addr {
	if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return plain(ap.Addr())
	}
	addr, _ := netip.ParseAddr(r.RemoteAddr) // middleware may have put one without a port there
	return plain(addr)
}

// plain is an address as it is compared: without a zone, which is of one host
// only, and an IPv4 address as such.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// client walks the header's lines from their end. addr is who has written what
// comes next: the peer at first. What cannot be read was written by a trusted
// proxy; all that is known then is that the request came through it. Nor is more
// known where the header is longer than proxies have reason to write.
func (c IPConfig) client(addr netip.Addr, lines []string) netip.Addr {
	next := lastHop
	if c.Header == Forwarded {
		next = lastElement
	}
	bytes, entries := maxHeaderBytes, maxHeaderEntries // that may still be read
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
			case cut && rest == "": // the entry may begin before what is read
				return addr
			case hop.IsValid():
				addr = hop
			case strings.Trim(entry[len(rest):], ", \t") != "":
				return addr // and not an empty element, which is none (RFC 9110, section 5.6.1)
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

// keyOf is the key of an address: its network, or that of the IPv4 address in it.
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
	if err != nil { // bits are checked
		return ""
	}
	return string(p.AppendTo(b))
}
