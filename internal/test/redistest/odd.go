package redistest

import (
	"slices"

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
