package redistest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// Odd starts a server that is not a Redis and returns its address. It accepts connections as a Redis does. It answers
// each call of a script or function with the bytes that reply returns. An empty reply closes the connection. reply is
// called from several goroutines. The server ends with the test.
func Odd(tb TB, reply func(cmd []string) string) (addr string) {
	tb.Helper()
	return OddTo(tb, reply, "EVALSHA", "EVAL", "FCALL", "FUNCTION")
}

// OddTo is Odd for the given commands.
func OddTo(tb TB, reply func(cmd []string) string, commands ...string) (addr string) {
	tb.Helper()
	srv, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(srv.Close)
	answer := func(c *server.Peer, cmd string, args []string) {
		raw := reply(append([]string{cmd}, args...))
		if raw == "" {
			c.Close()
			return
		}
		c.WriteRaw(raw)
	}
	for _, cmd := range commands {
		if err := srv.Register(cmd, answer); err != nil {
			tb.Fatalf("redistest: %v", err)
		}
	}
	for _, cmd := range []string{"CLIENT", "PING"} {
		if slices.Contains(commands, cmd) {
			continue
		}
		if err := srv.Register(cmd, func(c *server.Peer, _ string, _ []string) { c.WriteOK() }); err != nil {
			tb.Fatalf("redistest: %v", err)
		}
	}
	return srv.Addr().String() // HELLO is an unknown command: an old Redis
}

// Nonsense lists replies that no script of this library gives: replies of the wrong type, replies of the right type
// with wrong content, truncated replies, bytes that are not RESP, and Bombs.
var Nonsense = append([]string{
	":1\r\n", "+OK\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "$5\r\nhello\r\n", "_\r\n", "#t\r\n", ",nan\r\n", ",1.5\r\n", "(123456789012345678901234567890\r\n",
	"*1\r\n:1\r\n", "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n", "*4\r\n:1\r\n:2\r\n:0\r\n:0\r\n", "*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n", "*2\r\n*1\r\n:1\r\n:2\r\n", "*3\r\n$1\r\na\r\n$-1\r\n:1\r\n",
	"%1\r\n+a\r\n:1\r\n", "~1\r\n:1\r\n", "*1\r\n-ERR inside\r\n",
	"-ERR something\r\n", "-\r\n", "-HLBATCH no\r\n", "-NOSCRIPT again\r\n", "-MOVED x\r\n", "-ASK\r\n", "-Function not found\r\n",
	"*-7\r\n", "$-7\r\n", "*?\r\n:1\r\n.\r\n", "$?\r\n;4\r\nword\r\n;0\r\n",
	"*14\r\n:1\r\n:0\r\n", "$100\r\nshort\r\n", "", "\x00\xff\xfe\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", ":99999999999999999999\r\n", "*x\r\n", ":1", "*3\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
}, Bombs...)

// Bombs lists replies that are short or never end. A client that trusts their lengths runs out of memory or stack, or
// crashes.
var Bombs = []string{
	"*9223372036854775807\r\n", "*4000000000\r\n", "*100000000\r\n", "$9223372036854775806\r\n", "$8000000000\r\n", "$536870912\r\n",
	"%4611686018427387904\r\n", "%9223372036854775807\r\n", "%50000000\r\n", "~9223372036854775807\r\n", "~100000000\r\n",
	">9223372036854775807\r\n", ">100000000\r\n", ">2\r\n+message\r\n*100000000\r\n", "=9223372036854775800\r\n", "=536870912\r\n", "!536870912\r\n",
	"|9223372036854775807\r\n", "|1\r\n+ttl\r\n*100000000\r\n", "|1\r\n+ttl\r\n:1\r\n*100000000\r\n",
	"*1\r\n*100000000\r\n", "*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n$536870912\r\n",
	strings.Repeat("*1\r\n", 1<<16), strings.Repeat("~1\r\n", 1<<16), strings.Repeat("%1\r\n+a\r\n", 1<<16), strings.Repeat(">1\r\n", 1<<16),
	strings.Repeat("|0\r\n", 1<<16), strings.Repeat("|1\r\n", 1<<16), strings.Repeat("*1000\r\n", 1<<16),
	"+" + strings.Repeat("x", 1<<20), "-" + strings.Repeat("x", 1<<20), "(" + strings.Repeat("9", 1<<20), "_" + strings.Repeat("x", 1<<20),
	"*" + strings.Repeat("0", 1<<20),
}

// Numbers returns a reply with the right shape and random numbers, to a batch of ops; with 0 ops, to a heartbeat.
func Numbers(rng *rand.Rand, ops int) string {
	n := 5
	if ops > 0 {
		n = 4 + 10*ops
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", n)
	for i := range n {
		v := []int64{0, 1, 2, 5, 1000, 1e6, 1 << 40, 1 << 53, 1<<53 + 1, -1, 1<<63 - 1, -1 << 63}[rng.IntN(12)]
		if v > 4 && rng.IntN(2) == 0 {
			v = rng.Int64N(v)
		}
		switch {
		case i == 0 && ops > 0:
			v = 1
		case i == 1 && ops > 0:
			v = rng.Int64N(8)
		}
		fmt.Fprintf(&b, ":%d\r\n", v)
	}
	return b.String()
}
