package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

var replies = []struct {
	name string
	in   string
}{
	{"simple string", "+OK\r\n"},
	{"empty simple string", "+\r\n"},
	{"error", "-NOSCRIPT No matching script.\r\n"},
	{"integer", ":-42\r\n"},
	{"bulk string", "$5\r\nhe\r\no\r\n"},
	{"empty bulk string", "$0\r\n\r\n"},
	{"RESP2 null string", "$-1\r\n"},
	{"RESP2 null array", "*-1\r\n"},
	{"null", "_\r\n"},
	{"boolean", "#t\r\n"},
	{"double", ",-1.5e300\r\n"},
	{"infinite double", ",inf\r\n"},
	{"big number", "(3492890328409238509324850943850943825024385\r\n"},
	{"bulk error", "!5\r\nERR x\r\n"},
	{"verbatim string", "=7\r\ntxt:abc\r\n"},
	{"array", "*3\r\n:1\r\n$1\r\na\r\n*0\r\n"},
	{"set", "~2\r\n+a\r\n+b\r\n"},
	{"map", "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n"},
	{"push", ">2\r\n+invalidate\r\n_\r\n"},
	{"attribute and its value", "|1\r\n+ttl\r\n:9\r\n$1\r\nx\r\n"},
	{"attribute inside an array", "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n"},
	{"line longer than the reader's buffer", "-" + strings.Repeat("e", 10_000) + "\r\n"},
	{"string longer than the reader's buffer", "$10000\r\n" + strings.Repeat("s", 10_000) + "\r\n"},
	{"deep, within the limit", strings.Repeat("*1\r\n", maxDepth) + ":1\r\n"},
}

func TestReadReply(t *testing.T) {
	for _, tt := range replies {
		t.Run(tt.name, func(t *testing.T) {
			r := bufio.NewReader(iotest.OneByteReader(strings.NewReader(tt.in + "+next\r\n")))
			got, err := readReply(r)
			if err != nil || string(got) != tt.in {
				t.Fatalf("readReply = %q, %v; want %q", got, err, tt.in)
			}
			if next, err := readReply(r); err != nil || string(next) != "+next\r\n" {
				t.Errorf("the next reply: %q, %v", next, err)
			}
		})
	}
}

func TestReadReplyTorn(t *testing.T) {
	for _, tt := range replies {
		for n := range len(tt.in) {
			if n > 100 {
				break
			}
			want := io.ErrUnexpectedEOF
			if n == 0 {
				want = io.EOF
			}
			_, err := readReply(bufio.NewReader(strings.NewReader(tt.in[:n])))
			if err != want {
				t.Errorf("%s cut after %d bytes: %v, want %v", tt.name, n, err, want)
			}
		}
	}
}

func TestReadReplyMalformed(t *testing.T) {
	for _, in := range []string{
		"\r\n",
		"hello\r\n",
		"+OK\n",
		":1\rx\n",
		"$\r\n",
		"$abc\r\n",
		"$-2\r\n\r\n",
		"$+1\r\na\r\n",
		"$3\r\nabcd\r\n",
		"$3\r\nabc\n\n",
		"$99999999999999999999\r\n",
		"$?\r\n;1\r\na\r\n;0\r\n",
		"*?\r\n.\r\n",
		fmt.Sprintf("*%d\r\n", maxFrame+1),
		fmt.Sprintf("$%d\r\n", maxFrame+1),
		"*2\r\n:1\r\nx\r\n",
		"+" + strings.Repeat("x", maxFrame+1) + "\r\n",
		strings.Repeat("*1\r\n", maxDepth+1) + ":1\r\n",
		strings.Repeat("|0\r\n", maxDepth+1) + ":1\r\n",
	} {
		_, err := readReply(bufio.NewReader(strings.NewReader(in)))
		if !errors.Is(err, errMalformed) {
			t.Errorf("readReply(%.40q): %v, want malformed", in, err)
		}
	}
}

func TestReadRequest(t *testing.T) {
	for _, tt := range []struct {
		in   string
		args []string
		err  error
	}{
		{"*1\r\n$4\r\nPING\r\n", []string{"PING"}, nil},
		{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n", []string{"SET", "k", "a\r\nb"}, nil},
		{"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", []string{"GET", ""}, nil},
		{"PING\r\n", []string{"PING"}, nil},
		{" SET  k v\n", []string{"SET", "k", "v"}, nil},
		{"*0\r\n", nil, nil},
		{"*-1\r\n", nil, nil},
		{"\r\n", nil, nil},
		{"*1\r\n:1\r\n", nil, errMalformed},
		{"*1\r\n$-1\r\n", nil, errMalformed},
		{"*1\r\n\r\n", nil, errMalformed},
		{"*x\r\n", nil, errMalformed},
		{"*1\r\n$2\r\nabc\r\n", nil, errMalformed},
		{"", nil, io.EOF},
		{"*1\r\n", nil, io.ErrUnexpectedEOF},
		{"*1\r\n$4\r\nPI", nil, io.ErrUnexpectedEOF},
		{"PI", nil, io.ErrUnexpectedEOF},
	} {
		raw, args, err := readRequest(bufio.NewReader(strings.NewReader(tt.in)))
		if !errors.Is(err, tt.err) || !slices.Equal(args, tt.args) {
			t.Errorf("readRequest(%q) = %q, %v; want %q, %v", tt.in, args, err, tt.args, tt.err)
		}
		if err == nil && string(raw) != tt.in {
			t.Errorf("readRequest(%q) returned the bytes %q", tt.in, raw)
		}
	}
}

func TestIsPush(t *testing.T) {
	if !isPush([]byte(">1\r\n+a\r\n")) || isPush([]byte("*1\r\n+>\r\n")) {
		t.Error("isPush must check the type only")
	}
}

// FuzzFrame checks that framing never panics and takes exactly the bytes of one
// value, in any division of the input. Fuzz with -fuzzminimizetime 10x: by default
// the fuzzer minimizes each find for a minute and finds few others.
func FuzzFrame(f *testing.F) {
	for _, tt := range replies {
		if len(tt.in) < 100 { // long inputs only slow the fuzzer down
			f.Add([]byte(tt.in))
		}
	}
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	f.Add([]byte("PING\r\n+OK\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		reply, err := readReply(bufio.NewReader(bytes.NewReader(in)))
		slow, slowErr := readReply(bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(in)), 16))
		if !bytes.Equal(reply, slow) || fmt.Sprint(err) != fmt.Sprint(slowErr) {
			t.Fatalf("byte by byte: %q, %v; at once: %q, %v", slow, slowErr, reply, err)
		}
		if err == nil {
			if !bytes.HasPrefix(in, reply) {
				t.Fatalf("readReply(%q) = %q, want a prefix of the input", in, reply)
			}
			again, err := readReply(bufio.NewReader(bytes.NewReader(reply)))
			if err != nil || !bytes.Equal(again, reply) {
				t.Fatalf("reading %q again: %q, %v", reply, again, err)
			}
			for n := range len(reply) {
				if _, err := readReply(bufio.NewReader(bytes.NewReader(reply[:n]))); err == nil {
					t.Fatalf("%q is complete after only %d bytes", reply, n)
				}
				if n > 64 {
					break
				}
			}
		}

		raw, args, err := readRequest(bufio.NewReader(bytes.NewReader(in)))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(in, raw) {
			t.Fatalf("readRequest(%q) returned the bytes %q", in, raw)
		}
		if len(args) == 0 {
			return
		}
		_, again, err := readRequest(bufio.NewReader(bytes.NewReader(encode(args))))
		if err != nil || !slices.Equal(again, args) {
			t.Fatalf("encoding %q again gave %q, %v", args, again, err)
		}
	})
}

func encode(args []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}
