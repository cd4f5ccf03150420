package clientaddr

import (
	"net/netip"
	"strings"
)

// lastHop splits the last entry off a line of X-Forwarded-For. hop is invalid if the entry is not an address.
func lastHop(line string) (rest string, hop netip.Addr) {
	entry := line
	if i := strings.LastIndexByte(line, ','); i >= 0 {
		rest, entry = line[:i], line[i+1:]
	}
	return rest, address(strings.Trim(entry, " \t"))
}

// lastElement splits the last element off a line of Forwarded (RFC 7239, section
// 4) and reads its "for" parameter. It scans from the end, because trust also
// starts at the end: an unclosed quotation mark in a client's element must not
// hide the elements that a proxy appended.
func lastElement(line string) (rest string, hop netip.Addr) {
	at, semicolons := splitLast(line)
	element := line
	if at >= 0 {
		rest, element = line[:at], line[at+1:]
	}
	base := len(line) - len(element)
	end := len(element)
	found := false
	for i := 0; i <= len(semicolons); i++ { // the pairs, in reverse order
		begin := 0
		if i < len(semicolons) {
			begin = semicolons[i] - base + 1
		}
		name, value, ok := strings.Cut(element[begin:end], "=")
		if ok && strings.EqualFold(strings.Trim(name, " \t"), "for") {
			if found { // a parameter must not occur twice
				return rest, netip.Addr{}
			}
			found, hop = true, node(strings.Trim(value, " \t"))
		}
		end = begin - 1
	}
	return rest, hop
}

// splitLast scans from the end. It returns the position of the comma before the last element, or -1, and the positions
// of that element's semicolons in reverse order. Characters in quotation marks do not count.
func splitLast(line string) (comma int, semicolons []int) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch c := line[i]; {
		case c == '"':
			if quoted && escaped(line, i) {
				continue
			}
			quoted = !quoted
		case quoted:
		case c == ',':
			return i, semicolons
		case c == ';':
			semicolons = append(semicolons, i)
		}
	}
	return -1, semicolons
}

// escaped reports whether an odd number of backslashes precedes the character at i.
func escaped(s string, i int) bool {
	odd := false
	for i--; i >= 0 && s[i] == '\\'; i-- {
		odd = !odd
	}
	return odd
}

// node reads a node of Forwarded. It is invalid for "unknown" and for an obfuscated node.
func node(s string) netip.Addr {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
		if strings.IndexByte(s, '\\') >= 0 { // no address has a backslash
			return netip.Addr{}
		}
	}
	return address(s)
}

// address reads an address with or without a port. IPv6 may have brackets.
func address(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return plain(a)
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		a, err := netip.ParseAddr(s[1 : len(s)-1])
		if err != nil || !a.Is6() {
			return netip.Addr{}
		}
		return plain(a)
	}
	host, _, _ := strings.Cut(s, ":") // the port may be an obfuscated name such as _gate
	if strings.HasPrefix(s, "[") {
		i := strings.Index(s, "]:")
		if i < 0 {
			return netip.Addr{}
		}
		host = s[1:i]
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return plain(a)
}
