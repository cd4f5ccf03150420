package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits of a frame. With them, a corrupt length cannot use up the memory of the test binary. All messages of this
// library are much smaller.
const (
	maxLine  = 64 << 10 // bytes of one line; Redis' own limit for inline commands
	maxFrame = 64 << 20 // bytes of one whole request or reply
	maxItems = 1 << 20  // elements of one aggregate; Redis' own limit for requests
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
	if err := f.value(0); err != nil {
		return nil, f.ended(err)
	}
	return f.raw.Bytes(), nil
}

// readRequest reads one whole request: an array of bulk strings, or an inline command. args is empty for the empty
// requests that Redis skips without a reply ("*0" and blank lines). Errors are those of readReply.
func readRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	f := frame{r: r}
	if args, err = f.request(); err != nil {
		return nil, nil, f.ended(err)
	}
	return f.raw.Bytes(), args, nil
}

// isPush reports whether a reply is a push, for which no request waits.
func isPush(reply []byte) bool { return len(reply) > 0 && reply[0] == '>' }

// frame collects the bytes of one value.
type frame struct {
	r   *bufio.Reader
	raw bytes.Buffer
}

// ended returns io.ErrUnexpectedEOF if the input ended inside a value, else err.
func (f *frame) ended(err error) error {
	if errors.Is(err, io.EOF) && f.raw.Len() > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
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
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return nil
	case '$', '!', '=':
		n, err := length(rest, maxFrame)
		if err != nil || n < 0 {
			return err
		}
		return f.payload(n)
	case '*', '~', '>':
		return f.items(rest, 1, depth)
	case '%':
		return f.items(rest, 2, depth)
	case '|':
		if err := f.items(rest, 2, depth); err != nil {
			return err
		}
		// The value counts as a level. Otherwise a chain of attributes could recurse without limit.
		return f.value(depth + 1)
	default:
		return malformed("unknown type %q", kind)
	}
}

// items reads an aggregate's elements, per for each unit of its length.
func (f *frame) items(count []byte, per, depth int) error {
	n, err := length(count, maxItems)
	if err != nil {
		return err
	}
	for range n * per { // a null array has length -1
		if err := f.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

func (f *frame) request() ([]string, error) {
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
	n, err := length(line[1:], maxItems)
	if err != nil || n <= 0 {
		return nil, err
	}
	// args grows with the arrived strings. It is not allocated from the announced length.
	var args []string
	for range n {
		line, err := f.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 || line[0] != '$' {
			return nil, malformed("a request holds an element that is not a bulk string: %.20q", line)
		}
		size, err := length(line[1:], maxFrame)
		if err != nil {
			return nil, err
		}
		if size < 0 {
			return nil, malformed("a request holds a null")
		}
		if err := f.payload(size); err != nil {
			return nil, err
		}
		end := f.raw.Len() - len("\r\n")
		args = append(args, string(f.raw.Bytes()[end-size:end]))
	}
	return args, nil
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
		case n-start > maxLine:
			return nil, malformed("a line of more than %d bytes", maxLine)
		case n > maxFrame:
			return nil, malformed("more than %d bytes", maxFrame)
		case err == nil:
			return f.raw.Bytes()[start : n-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// payload reads n bytes and the CRLF behind them.
func (f *frame) payload(n int) error {
	n += len("\r\n")
	if f.raw.Len()+n > maxFrame {
		return malformed("more than %d bytes", maxFrame)
	}
	// CopyN grows the buffer with the arrived bytes, not with the announced length.
	if _, err := io.CopyN(&f.raw, f.r, int64(n)); err != nil {
		return err
	}
	if !bytes.HasSuffix(f.raw.Bytes(), []byte("\r\n")) {
		return malformed("a string is longer than its length")
	}
	return nil
}

// length parses a length: digits, or -1 for a null. It is stricter than strconv, which accepts signs. It fails early on
// a number above the limit.
func length(b []byte, limit int) (int, error) {
	if string(b) == "-1" {
		return -1, nil
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, malformed("length %.20q", b)
		}
		if n = n*10 + int(c-'0'); n > limit {
			return 0, malformed("length %.20q is over %d", b, limit)
		}
	}
	if len(b) == 0 {
		return 0, malformed("a length is missing")
	}
	return n, nil
}
