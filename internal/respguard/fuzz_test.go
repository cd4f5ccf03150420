package respguard

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// FuzzReplies compares the guard with a reader like go-redis's, on whole streams. All
// values for which that reader allocates are within the limits, and all replies within
// them pass byte for byte, cut in any way.
func FuzzReplies(f *testing.F) {
	for _, s := range valid {
		f.Add(s, []byte{1})
		f.Add(s+s, []byte{3, 1, 7})
	}
	for _, s := range refused {
		f.Add(s, []byte{1})
		f.Add(":1\r\n"+s, []byte{2, 5})
	}
	f.Add(strings.Repeat("*1\r\n", 100), []byte{9})
	f.Fuzz(func(t *testing.T, stream string, cuts []byte) {
		next := 0
		cut := func() int {
			if len(cuts) == 0 {
				return len(stream)
			}
			next++
			return int(cuts[next%len(cuts)])
		}
		got, err := passed(stream, &small, cut)
		if !strings.HasPrefix(stream, got) {
			t.Fatalf("%q became %q", stream, got)
		}
		end, bad := whole(stream, small)
		switch {
		case bad == nil && (err != nil || got != stream):
			t.Fatalf("%q is within the limits: passed %d of %d bytes, %v", stream, len(got), len(stream), err)
		case bad != nil && (err == nil || len(got) >= end):
			t.Fatalf("%q is not within the limits, by byte %d (%v): passed %d bytes, %v", stream, end, bad, len(got), err)
		}
	})
}

// reader reads values as go-redis does, by recursion.
type reader struct {
	rest          string
	limits        Limits
	values, bytes int64
}

var errEnd = errors.New("the stream ends")

// whole reads replies until the stream ends. bad is the reason why a reply is refused, at
// the latest by the byte before end.
func whole(stream string, l Limits) (end int, bad error) {
	r := reader{rest: stream, limits: l}
	for r.rest != "" {
		r.values, r.bytes = 1, 0
		switch err := r.value(1); err {
		case nil:
		case errEnd:
			return 0, nil
		default:
			return len(stream) - len(r.rest), err
		}
	}
	return 0, nil
}

// take takes n bytes, or fewer if the stream ends.
func (r *reader) take(n int64) error {
	if n > r.limits.Bytes-r.bytes {
		r.rest = r.rest[min(r.limits.Bytes-r.bytes+1, int64(len(r.rest))):]
		return errors.New("bytes")
	}
	r.bytes += n
	if n > int64(len(r.rest)) {
		r.rest = ""
		return errEnd
	}
	r.rest = r.rest[n:]
	return nil
}

// value reads a value at a level of nesting.
func (r *reader) value(level int) error {
	kind := r.rest[0]
	switch {
	case strings.IndexByte("+-:_,#(", kind) >= 0:
		n := strings.IndexByte(r.rest, '\n') + 1
		if n == 0 {
			if err := r.take(int64(len(r.rest))); err != nil {
				return err
			}
			return errEnd
		}
		return r.take(int64(n))
	case strings.IndexByte("$=!*~>%|", kind) < 0:
		r.rest = r.rest[1:]
		return errors.New("kind")
	}
	n, err := r.length(kind)
	if err != nil {
		return err
	}
	if n < 0 {
		return nil
	}
	switch kind {
	case '$', '=', '!':
		return r.text(n + 2)
	case '%':
		n *= 2
	case '|':
		n = 2*n + 1
	}
	if n > r.limits.Values-r.values {
		return errors.New("values")
	}
	r.values += n
	if n > 0 && level+1 > r.limits.Depth {
		return errors.New("levels")
	}
	for range n {
		if r.rest == "" {
			return errEnd
		}
		if err := r.value(level + 1); err != nil {
			return err
		}
	}
	return nil
}

// text reads a string whose header has been read. A length that is too large is refused
// before the first byte of the string.
func (r *reader) text(n int64) error {
	if n > r.limits.Bytes-r.bytes {
		return errors.New("bytes")
	}
	return r.take(n)
}

// length reads the rest of a header byte by byte, so that it refuses an invalid length at
// its first wrong byte.
func (r *reader) length(kind byte) (int64, error) {
	for i := 0; ; i++ {
		if i == len(r.rest) {
			r.rest = ""
			return 0, errEnd
		}
		if r.bytes++; r.bytes > r.limits.Bytes {
			r.rest = r.rest[i+1:]
			return 0, errors.New("bytes")
		}
		head := r.rest[1:min(i+1, len(r.rest))]
		digits := strings.TrimSuffix(strings.TrimSuffix(head, "\n"), "\r")
		plain := strings.TrimPrefix(digits, "-")
		ends := head[len(digits):]
		if i > 0 && (strings.Trim(plain, "0123456789") != "" || len(plain) > maxDigits || strings.HasPrefix(digits, "--") ||
			plain == "" && ends != "" || ends == "\n") {
			r.rest = r.rest[i+1:]
			return 0, errors.New("length")
		}
		if ends == "\r\n" {
			r.rest = r.rest[i+1:]
			n, err := strconv.ParseInt(digits, 10, 64)
			if err == nil && (n < -1 || digits[0] == '-' && (n != -1 || kind == '|')) {
				err = errors.New("negative")
			}
			return n, err
		}
	}
}
