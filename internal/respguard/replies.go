package respguard

import (
	"bytes"
	"fmt"
)

// Limits bounds one reply: the announced and the actual size of all its levels.
type Limits struct {
	Values int64 // the most values, keys of maps and attributes included
	Bytes  int64 // the most bytes
	Depth  int   // the most levels: a list of numbers has two
}

// maxDigits is the most digits of a length. A number of 15 digits fits an int64.
const maxDigits = 15

// replies follows a stream of replies. The zero value is at the start of a reply.
type replies struct {
	limits *Limits // of the current reply
	push   bool    // the current reply is a push message
	left   []int64 // the values still to come of each open level, the innermost last
	values int64   // values of the current reply, as announced so far
	bytes  int64   // bytes of the current reply, as announced so far
	done   int64   // complete replies, without push messages

	in     part
	kind   byte  // of the value with the current header
	length int64 // the length in the header, as far as it was read
	digits int   // the digits of the length so far
	minus  bool  // the length is negative
	skip   int64 // bytes of a string still to come, with its line end
}

// part is the part of a reply to which the next byte belongs.
type part byte

const (
	atKind   part = iota // the first byte of a value
	inLine               // a value that is a line
	inLength             // the length in a header
	atEnd                // the \n of a header
	inString             // the bytes of a string
)

// feed follows p. It returns the number of bytes to pass on: all, unless there is an
// error. A header that the limits refuse is never passed on completely.
func (r *replies) feed(p []byte, limits func(push bool) *Limits) (int, error) {
	for i := 0; i < len(p); {
		switch r.in {
		case atKind:
			if len(r.left) == 0 {
				r.push = p[i] == '>'
				r.limits, r.values, r.bytes = limits(r.push), 1, 0
			}
			if err := r.begin(p[i]); err != nil {
				return i, err
			}
			i++
		case inLine:
			n := bytes.IndexByte(p[i:], '\n') + 1
			rest := n == 0
			if rest {
				n = len(p) - i
			}
			if err := r.take(int64(n)); err != nil {
				return i, err
			}
			i += n
			if !rest {
				r.end()
			}
		case inString:
			n := min(r.skip, int64(len(p)-i))
			i += int(n)
			if r.skip -= n; r.skip == 0 {
				r.end()
			}
		default:
			if err := r.header(p[i]); err != nil {
				return i, err
			}
			i++
		}
	}
	return len(p), nil
}

// take counts n more bytes of the reply.
func (r *replies) take(n int64) error {
	if n > r.limits.Bytes-r.bytes {
		return r.tooLong()
	}
	r.bytes += n
	return nil
}

func (r *replies) tooLong() error { // a function of its own, so that take is inlined
	return fmt.Errorf("a reply of more than %d bytes", r.limits.Bytes)
}

// begin reads the first byte of a value.
func (r *replies) begin(kind byte) error {
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		r.in = inLine
	case '$', '=', '!', '*', '~', '>', '%', '|':
		r.in, r.length, r.digits, r.minus = inLength, 0, 0, false
	default:
		return fmt.Errorf("no reply begins with %q", kind)
	}
	r.kind = kind
	return r.take(1)
}

// header reads a byte of a header, after the first.
func (r *replies) header(c byte) error {
	if err := r.take(1); err != nil {
		return err
	}
	switch {
	case r.in == atEnd && c == '\n':
		return r.announced()
	case r.in == atEnd:
	case c >= '0' && c <= '9' && r.digits == maxDigits:
		return fmt.Errorf("a length of more than %d digits after %q", maxDigits, r.kind)
	case c >= '0' && c <= '9':
		r.length, r.digits = 10*r.length+int64(c-'0'), r.digits+1
		return nil
	case c == '-' && r.digits == 0 && !r.minus:
		r.minus = true
		return nil
	case c == '\r' && r.digits > 0:
		r.in = atEnd
		return nil
	}
	return fmt.Errorf("no length after %q", r.kind)
}

// announced is called at the last byte of a header. It refuses the header or expects the values that it announces.
func (r *replies) announced() error {
	n := r.length
	if r.minus { // RESP2 writes null as a length of -1
		if n != 1 || r.kind == '|' {
			return fmt.Errorf("a length of -%d after %q", n, r.kind)
		}
		r.end()
		return nil
	}
	switch r.kind {
	case '$', '=', '!':
		if err := r.take(n + 2); err != nil {
			return err
		}
		r.in, r.skip = inString, n+2
		return nil
	case '%':
		n *= 2
	case '|': // attributes, which stand before their value
		n = 2*n + 1
	}
	if n > r.limits.Values-r.values {
		return fmt.Errorf("a reply of more than %d values", r.limits.Values)
	}
	r.values += n
	if n == 0 {
		r.end()
		return nil
	}
	if len(r.left)+1 >= r.limits.Depth {
		return fmt.Errorf("a reply of more than %d levels", r.limits.Depth)
	}
	r.left, r.in = append(r.left, n), atKind
	return nil
}

// end ends a value, and every level that is complete with it.
func (r *replies) end() {
	r.in = atKind
	for top := len(r.left) - 1; top >= 0; top-- {
		if r.left[top]--; r.left[top] > 0 {
			return
		}
		r.left = r.left[:top]
	}
	if !r.push {
		r.done++
	}
}
