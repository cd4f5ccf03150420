package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of a frame. With them, a corrupt length cannot use up the memory of the test binary. All messages of this
// library are much smaller.
const (
	maxFrame = 16 << 20 // bytes of one whole request or reply, and elements of one aggregate
	maxDepth = 32       // nested aggregates; real replies have fewer than 8
)

// errMalformed is wrapped by every error that the bytes caused, as opposed to the connection.
var errMalformed = errors.New("redistest: malformed RESP")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errMalformed}, args...)...)
}

// readReply reads one whole RESP2 or RESP3 value and returns its bytes unchanged. An attribute is read together with
// the value that it describes, because a client does not count it as a reply. The streamed types of the RESP3
// specification (lengths of "?") are refused: no Redis has ever sent one.
//
// The error is io.EOF when the input ends before a value, and io.ErrUnexpectedEOF when it ends inside one.
func readReply(r *bufio.Reader) ([]byte, error) {
	f := frame{r: r}
	err := f.value(0)
	return f.end(err)
}

// readRequest reads one whole request: an array of bulk strings, or an inline command. args is empty for the empty
// requests that Redis skips without a reply ("*0" and blank lines). Errors are those of readReply.
func readRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	f := frame{r: r}
	args, err = f.request()
	raw, err = f.end(err)
	return raw, args, err
}

// isPush reports whether a reply is a push, for which no request waits.
func isPush(reply []byte) bool { return len(reply) > 0 && reply[0] == '>' }

// frame collects the bytes of one value.
type frame struct {
	r   *bufio.Reader
	raw bytes.Buffer
}

// end returns the bytes, or an error.
func (f *frame) end(err error) ([]byte, error) {
	switch {
	case err == nil:
		return f.raw.Bytes(), nil
	case errors.Is(err, io.EOF) && f.raw.Len() > 0:
		return nil, io.ErrUnexpectedEOF
	}
	return nil, err
}

func (f *frame) value(depth int) error {
	if depth > maxDepth {
		return malformed("more than %d levels deep", maxDepth)
	}
	line, err := f.line()
	if err != nil {
		return err
	}
	if len(line) == 0 {
		return malformed("empty line where a type was expected")
	}
	kind, per := line[0], 1
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return nil
	case '$', '!', '=':
		_, _, err := f.payload(line[1:])
		return err
	case '*', '~', '>':
	case '%', '|':
		per = 2
	default:
		return malformed("unknown type %q", kind)
	}
	n, err := length(line[1:])
	for i := 0; err == nil && i < n*per; i++ {
		err = f.value(depth + 1)
	}
	if err == nil && kind == '|' {
		// The value counts as a level. Otherwise a chain of attributes could recurse without limit.
		return f.value(depth + 1)
	}
	return err
}

func (f *frame) request() (args []string, err error) {
	first, err := f.r.Peek(1)
	if err != nil {
		return nil, err
	}
	if first[0] != '*' {
		line, err := f.inline()
		return strings.Fields(string(line)), err
	}
	line, err := f.line()
	if err != nil {
		return nil, err
	}
	n, err := length(line[1:])
	for i := 0; err == nil && i < n; i++ {
		if line, err = f.line(); err != nil {
			break
		}
		if !bytes.HasPrefix(line, []byte("$")) {
			return nil, malformed("a request holds an element that is not a bulk string: %.20q", line)
		}
		text, null, err := f.payload(line[1:])
		if err != nil {
			return nil, err
		}
		if null {
			return nil, malformed("a request holds a null")
		}
		args = append(args, string(text))
	}
	return args, err
}

// line reads up to CRLF and returns the bytes before it. They are valid until the next read.
func (f *frame) line() ([]byte, error) {
	line, err := f.inline()
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(line, []byte("\r")) {
		return nil, malformed("a line ends without a carriage return: %.20q", line)
	}
	return line[:len(line)-1], nil
}

// inline reads up to LF. Redis accepts LF as the end of an inline command.
func (f *frame) inline() ([]byte, error) {
	start := f.raw.Len()
	for {
		part, err := f.r.ReadSlice('\n')
		f.raw.Write(part)
		switch n := f.raw.Len(); {
		case n > maxFrame:
			return nil, malformed("more than %d bytes", maxFrame)
		case err == nil:
			return f.raw.Bytes()[start : n-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// payload reads a string of the given length, and the CRLF behind it. null is true for the length -1.
func (f *frame) payload(size []byte) (text []byte, null bool, err error) {
	n, err := length(size)
	if err != nil || n < 0 {
		return nil, n < 0, err
	}
	start := f.raw.Len()
	if start+n > maxFrame {
		return nil, false, malformed("more than %d bytes", maxFrame)
	}
	// CopyN grows the buffer with the arrived bytes, not with the announced length.
	if _, err := io.CopyN(&f.raw, f.r, int64(n+len("\r\n"))); err != nil {
		return nil, false, err
	}
	text, ok := bytes.CutSuffix(f.raw.Bytes()[start:], []byte("\r\n"))
	if !ok {
		return nil, false, malformed("a string is longer than its length")
	}
	return text, false, nil
}

// length parses a length: digits, or -1 for a null.
func length(b []byte) (int, error) {
	if string(b) == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil || n > maxFrame {
		return 0, malformed("length %.20q", b)
	}
	return int(n), nil
}
