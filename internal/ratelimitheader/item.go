package ratelimitheader

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// itemKind is the type of a bare item of structured fields.
type itemKind uint8

const (
	kindInteger itemKind = iota
	kindString
	kindBytes
	kindOther // Decimal, Token, Boolean, Date, Display String: checked, but the value is not kept
)

// bareItem is the value of an item or of a parameter.
type bareItem struct {
	kind itemKind
	n    int64  // set for kindInteger
	s    string // set for kindString and kindBytes, decoded
}

// parser consumes structured fields (RFC 9651, section 4.2) from the front of in.
type parser struct{ in string }

// skip consumes any of chars.
func (p *parser) skip(chars string) { p.in = strings.TrimLeft(p.in, chars) }

// take consumes c if c comes next.
func (p *parser) take(c byte) bool {
	if p.in == "" || p.in[0] != c {
		return false
	}
	p.in = p.in[1:]
	return true
}

// while consumes the longest prefix whose characters all match.
func (p *parser) while(match func(c byte) bool) string {
	i := 0
	for i < len(p.in) && match(p.in[i]) {
		i++
	}
	s := p.in[:i]
	p.in = p.in[i:]
	return s
}

// parameters reads Parameters (section 4.2.3.2). If a name occurs twice, the last value counts.
func (p *parser) parameters() (map[string]bareItem, bool) {
	var params map[string]bareItem
	for p.take(';') {
		p.skip(" ")
		if p.in == "" || !lower(p.in[0]) && p.in[0] != '*' {
			return nil, false
		}
		name := p.while(func(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 })
		value := bareItem{kind: kindOther} // Boolean true
		if p.take('=') {
			var ok bool
			if value, ok = p.bare(); !ok {
				return nil, false
			}
		}
		if params == nil {
			params = map[string]bareItem{}
		}
		params[name] = value
	}
	return params, true
}

// bare reads a Bare Item (section 4.2.3.1).
func (p *parser) bare() (bareItem, bool) {
	if p.in == "" {
		return bareItem{}, false
	}
	switch c := p.in[0]; {
	case c == '-' || digit(c):
		return p.number()
	case c == '"':
		return p.text()
	case c == ':':
		return p.bytes()
	case c == '*' || alpha(c):
		p.while(func(c byte) bool {
			return alpha(c) || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
		})
		return bareItem{kind: kindOther}, true
	case c == '?':
		p.in = p.in[1:]
		return bareItem{kind: kindOther}, p.take('0') || p.take('1')
	case c == '@':
		p.in = p.in[1:]
		n, ok := p.number()
		return bareItem{kind: kindOther}, ok && n.kind == kindInteger
	case c == '%':
		return p.display()
	}
	return bareItem{}, false
}

// number reads an Integer of at most 15 digits, or a Decimal (section 4.2.4).
func (p *parser) number() (bareItem, bool) {
	sign := int64(1)
	if p.take('-') {
		sign = -1
	}
	whole := p.while(digit)
	if whole == "" {
		return bareItem{}, false
	}
	if p.take('.') {
		fraction := p.while(digit)
		return bareItem{kind: kindOther}, len(whole) <= 12 && len(fraction) >= 1 && len(fraction) <= 3
	}
	if len(whole) > 15 {
		return bareItem{}, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	return bareItem{kind: kindInteger, n: sign * n}, err == nil
}

// text reads a String (section 4.2.5).
func (p *parser) text() (bareItem, bool) {
	p.in = p.in[1:]
	var b strings.Builder
	for p.in != "" {
		c := p.in[0]
		p.in = p.in[1:]
		switch {
		case c == '"':
			return bareItem{kind: kindString, s: b.String()}, true
		case c < ' ' || c > '~':
			return bareItem{}, false
		case c == '\\':
			if p.in == "" || p.in[0] != '"' && p.in[0] != '\\' {
				return bareItem{}, false
			}
			c = p.in[0]
			p.in = p.in[1:]
		}
		b.WriteByte(c)
	}
	return bareItem{}, false
}

// bytes reads a Byte Sequence (section 4.2.7).
func (p *parser) bytes() (bareItem, bool) {
	text, rest, ok := strings.Cut(p.in[1:], ":")
	if !ok {
		return bareItem{}, false
	}
	p.in = rest
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil && !strings.Contains(text, "=") {
		decoded, err = base64.RawStdEncoding.DecodeString(text) // a parser should accept missing padding
	}
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return bareItem{}, false
	}
	return bareItem{kind: kindBytes, s: string(decoded)}, true
}

// display reads a Display String (section 4.2.10): percent-encoded UTF-8 in
// quotation marks.
func (p *parser) display() (bareItem, bool) {
	p.in = p.in[1:]
	if !p.take('"') {
		return bareItem{}, false
	}
	var b []byte
	for p.in != "" {
		c := p.in[0]
		p.in = p.in[1:]
		switch {
		case c == '"':
			return bareItem{kind: kindOther}, utf8.Valid(b)
		case c < ' ' || c > '~':
			return bareItem{}, false
		case c == '%':
			if len(p.in) < 2 || !lowerHex(p.in[0]) || !lowerHex(p.in[1]) {
				return bareItem{}, false
			}
			n, err := strconv.ParseUint(p.in[:2], 16, 8)
			if err != nil {
				return bareItem{}, false
			}
			c = byte(n)
			p.in = p.in[2:]
		}
		b = append(b, c)
	}
	return bareItem{}, false
}

func digit(c byte) bool    { return '0' <= c && c <= '9' }
func lower(c byte) bool    { return 'a' <= c && c <= 'z' }
func alpha(c byte) bool    { return lower(c) || 'A' <= c && c <= 'Z' }
func lowerHex(c byte) bool { return digit(c) || 'a' <= c && c <= 'f' }
