package clientkey

import (
	"net/netip"
	"strings"
)

// The kinds of keys, as their first letters.
const (
	userKind   = "user:"
	hiddenKind = "user#" // a user as a hash: no text of userKind can equal it
	ipKind     = "ip:"
	apiKeyKind = "apikey:"
	bearerKind = "bearer:"
	routeKind  = "route:"
)

// Everyone is the one key of a limit for all calls.
const Everyone = "*"

// Unmatched is the route of calls that no route matches. No pattern and no full method
// equals it, because each of these has a slash.
const Unmatched = "unmatched"

// Route returns the key of a route: the pattern of an HTTP route, such as
// "GET /users/{id}", or the full method of gRPC, such as "/shop.Orders/List".
func Route(route string) string { return routeKind + route }

// IP returns the key of a client's address, as httplimit.PeerIP does: of an IPv6 address it is the network of 64 bits.
// It returns "" for an invalid address. Addresses that stand for an IPv4 address in another way than ::ffff:192.0.2.1
// are not translated.
func IP(addr netip.Addr) string {
	if addr = addr.Unmap(); addr.Is4() {
		return Network(addr, 32)
	}
	return Network(addr, 64)
}

// Network returns the key of the network of an address with this number of bits, as httplimit.ClientIP does with
// IPConfig.IPv4Bits or IPv6Bits. It returns "" for an invalid address or number.
func Network(addr netip.Addr, bits int) string {
	p, err := addr.WithZone("").Prefix(bits)
	if err != nil || !addr.IsValid() {
		return ""
	}
	var room [64]byte
	b := append(room[:0], ipKind...)
	if p.IsSingleIP() {
		return string(p.Addr().AppendTo(b))
	}
	return string(p.AppendTo(b))
}

// Join returns the key of several keys together, as httplimit.Join does. If one of them
// is empty, the result is empty. Different lists of keys give different results.
func Join(keys ...string) string {
	var b strings.Builder
	for i, key := range keys {
		if key == "" {
			return ""
		}
		if i > 0 {
			b.WriteByte(separator)
		}
		appendPart(&b, key)
	}
	return b.String()
}

// appendPart adds a key to a joint key.
func appendPart(b *strings.Builder, part string) {
	if !strings.ContainsAny(part, `|\`) {
		b.WriteString(part)
		return
	}
	for i := range len(part) {
		if part[i] == separator || part[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(part[i])
	}
}

// separator stands between the parts of a joint key.
const separator = '|'
