package clientaddr

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/clientkey"
)

// The headers in which proxies write the client's address.
const (
	XForwardedFor = "X-Forwarded-For"
	Forwarded     = "Forwarded"
)

// Address finds the client's address, and the part of it that is the key. Its
// fields are those of httplimit.IPConfig, which describes them.
type Address struct {
	TrustedProxies     []netip.Prefix // the networks of proxies
	Header             string         // the header that they write
	TrustUnix          bool           // a peer without an address is a proxy
	IPv4Bits, IPv6Bits int            // the length of the key's prefix
	NAT64              []netip.Prefix // of translators
}

// Peer is the Address that trusts no proxy.
var Peer = Address{IPv4Bits: 32, IPv6Bits: 64}

// Bounds on the part of Address.Header that is read.
const (
	maxHeaderBytes   = 8 << 10
	maxHeaderEntries = 64
)

// Checked returns a copy of a with its defaults, or an error of package pkg that
// lists everything wrong with a. Header must be in its canonical form.
func (a Address) Checked(pkg string) (Address, error) {
	if a.Header == "" {
		a.Header = XForwardedFor
	}
	if a.IPv4Bits == 0 {
		a.IPv4Bits = Peer.IPv4Bits
	}
	if a.IPv6Bits == 0 {
		a.IPv6Bits = Peer.IPv6Bits
	}
	var bad adapter.Violations
	if a.Header != XForwardedFor && a.Header != Forwarded {
		bad.Add("IPConfig.Header", a.Header, "must be X-Forwarded-For or Forwarded")
	}
	bad.AddIf(a.IPv4Bits < 1 || a.IPv4Bits > 32, "IPConfig.IPv4Bits", a.IPv4Bits, "must be 1 to 32")
	bad.AddIf(a.IPv6Bits < 1 || a.IPv6Bits > 128, "IPConfig.IPv6Bits", a.IPv6Bits, "must be 1 to 128")
	for i, p := range a.TrustedProxies {
		if !p.IsValid() || p.Bits() == 0 {
			bad.Add(fmt.Sprintf("IPConfig.TrustedProxies[%d]", i), p, "must be a network with a prefix of at least 1 bit")
		}
		if p.Addr().Is4In6() {
			bad.Add(fmt.Sprintf("IPConfig.TrustedProxies[%d]", i), p, "must be written as an IPv4 network")
		}
	}
	for i, p := range a.NAT64 {
		if !translates(p) {
			bad.Add(fmt.Sprintf("IPConfig.NAT64[%d]", i), p, "must be an IPv6 network of /32, /40, /48, /56, /64 or /96")
		}
	}
	if err := bad.Err(pkg); err != nil {
		return Address{}, err
	}
	a.TrustedProxies, a.NAT64 = slices.Clone(a.TrustedProxies), slices.Clone(a.NAT64)
	return a, nil
}

// Reads reports whether Key uses the lines of Header for a peer. A peer without an address is invalid.
func (a *Address) Reads(peer netip.Addr) bool {
	if !peer.IsValid() {
		return a.TrustUnix
	}
	return len(a.TrustedProxies) > 0
}

// Key returns the key of a request from a peer with these lines of Header, or "".
func (a *Address) Key(peer netip.Addr, lines []string) string {
	peer = plain(peer)
	if a.Reads(peer) {
		peer = a.client(peer, lines)
	}
	return a.keyOf(peer)
}

// PeerAddr returns the address in the text of a peer, with or without a port. It is invalid if there is none.
func PeerAddr(text string) netip.Addr {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr()
	}
	addr, _ := netip.ParseAddr(text) // other middleware may have set an address without a port
	return addr
}

// plain returns the form of an address that is compared: IPv4 if it is IPv4-mapped,
// and without a zone, which has a meaning on one host only.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// client reads the header's lines from their end. addr is the host that wrote the next entry; the first is the peer. If
// a trusted proxy wrote an entry that is not an address, that proxy is the client, because nothing else is known. The
// same holds if the bounds on bytes or entries end the reading.
func (a *Address) client(addr netip.Addr, lines []string) netip.Addr {
	next := lastHop
	if a.Header == Forwarded {
		next = lastElement
	}
	bytes, entries := maxHeaderBytes, maxHeaderEntries // left to read
	for _, line := range slices.Backward(lines) {
		cut := len(line) > bytes
		if cut {
			line = line[len(line)-bytes:]
		}
		for rest := line; rest != ""; {
			if addr.IsValid() && !a.trusts(addr) {
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

func (a *Address) trusts(addr netip.Addr) bool {
	for _, p := range a.TrustedProxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// keyOf returns the key of an address: its network, or the network of the IPv4 address that it stands for.
func (a *Address) keyOf(addr netip.Addr) string {
	if v4, ok := embedded(addr, a.NAT64); ok {
		addr = v4
	}
	bits := a.IPv6Bits
	if addr.Is4() {
		bits = a.IPv4Bits
	}
	return clientkey.Network(addr, bits)
}
