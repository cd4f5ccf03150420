package clientaddr

import "net/netip"

// The networks whose addresses contain the IPv4 address of a host.
var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052, section 2.1
	sixTo4 = netip.MustParsePrefix("2002::/16")    // RFC 3056, section 2
	teredo = netip.MustParsePrefix("2001::/32")    // RFC 4380, section 4
)

// embedded returns the IPv4 address of the host that an IPv6 address stands for.
// translators are NAT64 prefixes besides the well-known one.
func embedded(addr netip.Addr, translators []netip.Prefix) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	for _, p := range translators {
		if p.Contains(addr) {
			return translated(addr, p.Bits()), true
		}
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr):
		return translated(addr, nat64.Bits()), true
	case sixTo4.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(addr): // the address of the client's NAT, with each bit inverted
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	}
	return netip.Addr{}, false
}

// translated returns the IPv4 address after a prefix of RFC 6052, section 2.2. The address skips byte 8.
func translated(addr netip.Addr, bits int) netip.Addr {
	b := addr.As16()
	var v4 [4]byte
	at := bits / 8
	for i := range v4 {
		if at == 8 {
			at++
		}
		v4[i] = b[at]
		at++
	}
	return netip.AddrFrom4(v4)
}

// translates reports whether p can be a NAT64 prefix (RFC 6052, section 2.2).
func translates(p netip.Prefix) bool {
	if !p.Addr().Is6() || p.Addr().Is4In6() {
		return false
	}
	switch p.Bits() {
	case 32, 40, 48, 56, 64, 96:
		return true
	}
	return false
}
