package respguard

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

var errRefused = errors.New("refused")

func testRules() *Rules {
	return &Rules{
		Class: func(first, second []byte) Class {
			switch string(first) + " " + string(second) {
			case "ours sha", "hello 3", "ping ":
				return Short
			case "cluster slots":
				return Map
			case "monitor ":
				return Stream
			}
			return Other
		},
		Limits: [...]Limits{Short: {Values: 10, Bytes: 100, Depth: 3}, Map: {Values: 100, Bytes: 1000, Depth: 5}, Other: {Values: 1000, Bytes: 10_000, Depth: 50}},
		Push:   Limits{Values: 500, Bytes: 1000, Depth: 5},
		Err:    errRefused,
	}
}

// script is a connection whose other side sends given bytes.
type script struct {
	net.Conn
	say     string
	written strings.Builder
}

func (s *script) Read(p []byte) (int, error) {
	n := copy(p, s.say)
	s.say = s.say[n:]
	return n, nil
}
func (s *script) Write(p []byte) (int, error) { return s.written.Write(p) }

// request is a command, as go-redis writes it.
func request(words ...string) string {
	var b strings.Builder
	b.WriteString("*" + itoa(len(words)) + "\r\n")
	for _, w := range words {
		b.WriteString("$" + itoa(len(w)) + "\r\n" + w + "\r\n")
	}
	return b.String()
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

func list(n int) string { return "*" + itoa(n) + "\r\n" + strings.Repeat(":1\r\n", n) }

// TestACommandIsToldWhatItsClassMayBe checks that the class of a command sets the limits of
// its reply. Each step is a command and the bytes of the reply. A step without a command is
// bytes that the server sends without a request.
func TestACommandIsToldWhatItsClassMayBe(t *testing.T) {
	type step struct{ ask, say string }
	ours, theirs, slots := request("ours", "sha", strings.Repeat("x", 300)), request("get", "k"), request("cluster", "slots")
	for name, tc := range map[string]struct {
		steps []step
		ok    bool // the last step passes; the earlier ones always pass
	}{
		"ours":                           {[]step{{ours, list(9)}}, true},
		"too much for ours":              {[]step{{ours, list(10)}}, false},
		"theirs":                         {[]step{{theirs, list(900)}}, true},
		"too much for theirs":            {[]step{{theirs, list(1000)}}, false},
		"slots":                          {[]step{{slots, list(90)}}, true},
		"too much for slots":             {[]step{{slots, list(100)}}, false},
		"ours after theirs":              {[]step{{theirs, list(900)}, {ours, list(10)}}, false},
		"theirs after ours":              {[]step{{ours, list(9)}, {theirs, list(900)}}, true},
		"ours after slots":               {[]step{{slots, list(90)}, {ours, list(10)}}, false},
		"theirs, then a message":         {[]step{{theirs, ">1\r\n+a\r\n" + list(900)}, {ours, list(10)}}, false},
		"in one pipeline":                {[]step{{ours + theirs + ours, list(9) + list(900) + list(9)}}, true},
		"in one pipeline, the last":      {[]step{{ours + theirs + ours, list(9) + list(900) + list(10)}}, false},
		"before it is asked":             {[]step{{"", list(10)}}, false},
		"a message":                      {[]step{{ours, ">9\r\n" + list(9)[4:] + list(9)}}, true},
		"a long message":                 {[]step{{ours, ">10\r\n"}}, false},
		"a long message of theirs":       {[]step{{theirs, list(1)}, {"", ">400\r\n" + strings.Repeat(":1\r\n", 400)}}, false},
		"a message of theirs":            {[]step{{theirs, list(1)}, {"", ">200\r\n" + strings.Repeat(":1\r\n", 200)}}, true},
		"a stream":                       {[]step{{request("monitor"), "+OK\r\n"}, {"", list(900)}, {"", list(900)}}, true},
		"ours after a stream":            {[]step{{request("monitor"), "+OK\r\n"}, {ours, list(900)}}, true},
		"one word":                       {[]step{{request("ping"), list(10)}}, false},
		"one word and more":              {[]step{{request("ping", "x"), list(10)}}, true},
		"what is no command":             {[]step{{"PING\r\n", list(900)}}, true},
		"a word like ours":               {[]step{{request("set", "k", ours), list(900)}}, true},
		"replies that do not come":       {[]step{{theirs, ""}, {ours, list(900)}, {ours, list(9)}}, true},
		"nested, ours":                   {[]step{{ours, "*1\r\n*1\r\n:1\r\n"}}, true},
		"nested too deep, ours":          {[]step{{ours, "*1\r\n*1\r\n*1\r\n:1\r\n"}}, false},
		"a line, ours":                   {[]step{{ours, "+" + strings.Repeat("x", 200) + "\r\n"}}, false},
		"a greeting":                     {[]step{{request("hello", "3"), "%4\r\n" + strings.Repeat("+a\r\n:1\r\n", 4)}}, true},
		"a command of no words, and not": {[]step{{"*0\r\n", list(900)}}, true},
	} {
		for _, size := range []int{1, 2, 3, 7, 50, 1 << 20} {
			inner := &script{}
			conn := Wrap(inner, testRules())
			for i, s := range tc.steps {
				for p := range pieces(s.ask, size) {
					if _, err := conn.Write([]byte(p)); err != nil {
						t.Fatal(err)
					}
				}
				var got strings.Builder
				var err error
				for inner.say = s.say; inner.say != "" && err == nil; {
					p := make([]byte, size)
					var n int
					n, err = conn.Read(p)
					got.Write(p[:n])
				}
				if want := tc.ok || i < len(tc.steps)-1; want != (err == nil) || want && got.String() != s.say || !want && !errors.Is(err, errRefused) {
					t.Errorf("%s, step %d in pieces of %d: passed %d of %d bytes, %v", name, i, size, got.Len(), len(s.say), err)
				}
				if err != nil {
					if n, again := conn.Read(make([]byte, 9)); n != 0 || !errors.Is(again, errRefused) {
						t.Errorf("%s: then %d bytes, %v", name, n, again)
					}
				}
			}
			var asked strings.Builder
			for _, s := range tc.steps {
				asked.WriteString(s.ask)
			}
			if inner.written.String() != asked.String() {
				t.Errorf("%s: %q was written", name, inner.written.String())
			}
		}
	}
}

func pieces(s string, size int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for s != "" {
			n := min(size, len(s))
			if !yield(s[:n]) {
				return
			}
			s = s[n:]
		}
	}
}

// go-redis checks whether a socket is idle. It unwraps a connection that hides its socket.
func TestAGuardShowsTheSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	socket, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	pipe, other := net.Pipe()
	defer other.Close()
	defer pipe.Close()
	for name, conn := range map[string]net.Conn{"socket": socket, "pipe": pipe} {
		guarded := Wrap(conn, testRules())
		if _, ok := guarded.(syscall.Conn); ok != (name == "socket") {
			t.Errorf("%s: a syscall.Conn: %v", name, ok)
		}
		if got := guarded.(interface{ NetConn() net.Conn }).NetConn(); got != conn {
			t.Errorf("%s: NetConn is %v", name, got)
		}
		if Wrap(guarded, testRules()) != guarded {
			t.Errorf("%s: two guards", name)
		}
	}
}

func TestAGuardedReadAllocatesNothing(t *testing.T) {
	inner := &script{}
	conn := Wrap(inner, testRules())
	ask, say, p := []byte(request("ours", "sha", "k")), list(9), make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		inner.written.Reset()
		inner.say = say
		conn.(*guarded).requests.feed(ask, conn.(*guarded).rules.Class)
		if _, err := conn.Read(p); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkGuard measures the cost of a guard for a command and its reply: for one
// decision, and for the longest batch.
func BenchmarkGuard(b *testing.B) {
	words := []string{"ours", "sha", "1", "hl:v2:{0}:b:api:user", "1 0 0 1", "b 10000000 1000000 10000000", "1 0 0 0 0 0 0 0 0 0 0 1"}
	for name, bm := range map[string]struct{ ask, say string }{
		"decision": {request(words...), list(14)},
		"batch":    {request(append(words, strings.Split(strings.Repeat("1 0 0 0 0 0 0 0 0 0 0 1,", 128), ",")...)...), list(644)},
	} {
		b.Run(name, func(b *testing.B) {
			rules := testRules()
			rules.Limits[Short] = Limits{Values: 1024, Bytes: 1 << 17, Depth: 16}
			g := Wrap(&script{}, rules).(*guarded)
			ask, say := []byte(bm.ask), []byte(bm.say)
			b.ReportAllocs()
			for b.Loop() {
				g.requests.feed(ask, rules.Class)
				if _, err := g.replies.feed(say, g.limits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
