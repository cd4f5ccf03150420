package circuit_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// fakeRedis speaks a small part of the protocol. For its replies, go-redis returns the
// same errors as for the replies of a real server. It answers a connection's handshake
// with success.
type fakeRedis struct {
	// reply answers one command; it may write to the connection, or close it.
	reply func(conn net.Conn)
	// greet answers the handshake. Nil: success.
	greet func(conn net.Conn)
}

// say replies with one line.
func say(line string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, line+"\r\n") }
}

func hangUp(c net.Conn) { _ = c.Close() }

// reset closes with RST instead of FIN, so that the peer sees a reset.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func silence(net.Conn) {}

// start serves until the test ends, and returns the address.
func (f fakeRedis) start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

func (f fakeRedis) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	for {
		name, err := readCommand(r)
		if err != nil {
			return
		}
		switch {
		case name != "HELLO" && name != "CLIENT":
			f.reply(conn)
		case f.greet != nil:
			f.greet(conn)
		case name == "HELLO":
			say("%1\r\n+server\r\n+redis")(conn)
		default:
			say("+OK")(conn)
		}
	}
}

// readCommand reads an array of bulk strings and returns the first, in capitals.
func readCommand(r *bufio.Reader) (name string, err error) {
	length := func() int {
		line, e := r.ReadString('\n')
		if e != nil || len(line) < 3 {
			err = io.ErrUnexpectedEOF
			return 0
		}
		n, e := strconv.Atoi(strings.TrimSpace(line[1:]))
		if e != nil {
			err = e
		}
		return n
	}
	words := length()
	for i := 0; i < words && err == nil; i++ {
		word := make([]byte, length()+2)
		if err == nil {
			_, err = io.ReadFull(r, word)
		}
		if i == 0 {
			name = strings.ToUpper(string(word[:len(word)-2]))
		}
	}
	return name, err
}

// client returns a go-redis client that tries once.
func client(t *testing.T, addr string, adjust ...func(*redis.Options)) *redis.Client {
	t.Helper()
	opt := &redis.Options{
		Addr:                  addr,
		MaxRetries:            -1,
		DialerRetries:         1,
		ReadTimeout:           30 * time.Second,
		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
	}
	if strings.HasPrefix(addr, "/") {
		opt.Network = "unix"
	}
	for _, f := range adjust {
		f(opt)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
