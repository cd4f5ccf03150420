package benchkit

import (
	"math/rand/v2"
	"testing"
)

// TestRequests checks that each command of a stream is counted once, for any
// division of the stream into pieces.
func TestRequests(t *testing.T) {
	const stream = "*1\r\n$4\r\nPING\r\n" +
		"*3\r\n$3\r\nSET\r\n$11\r\n*9\r\n$3\r\n\r\n*\r\n$0\r\n\r\n" + // data that looks like a command
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var r requests
		var n int64
		for rest := []byte(stream); len(rest) > 0; {
			k := 1 + rng.IntN(len(rest))
			n += r.count(rest[:k])
			rest = rest[k:]
		}
		if n != 3 {
			t.Fatalf("%d commands, want 3", n)
		}
	}
}
