package redistest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Nonsense is replies that no script of this library gives: of the wrong type,
// of the right type and the wrong content, broken off, and what is no RESP.
var Nonsense = []string{
	":1\r\n", "+OK\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "$5\r\nhello\r\n", "_\r\n", "#t\r\n", ",nan\r\n", ",1.5\r\n", "(123456789012345678901234567890\r\n",
	"*1\r\n:1\r\n", "*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n", "*4\r\n:1\r\n:2\r\n:0\r\n:0\r\n", "*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n", "*2\r\n*1\r\n:1\r\n:2\r\n", "*3\r\n$1\r\na\r\n$-1\r\n:1\r\n",
	"%1\r\n+a\r\n:1\r\n", "~1\r\n:1\r\n", "*1\r\n-ERR inside\r\n",
	"-ERR something\r\n", "-\r\n", "-HLBATCH no\r\n", "-NOSCRIPT again\r\n", "-MOVED x\r\n", "-ASK\r\n", "-Function not found\r\n",
	"*14\r\n:1\r\n:0\r\n", "$100\r\nshort\r\n", "", "\x00\xff\xfe\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", ":99999999999999999999\r\n", "*x\r\n", ":1", "*3\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
}

// Numbers is a reply of the right shape to a batch of ops or, for none, to a
// heartbeat, of numbers that mean nothing.
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
