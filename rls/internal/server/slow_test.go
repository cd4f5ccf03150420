package server

import (
	"io"
	"net"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// Clients that connect and then say nothing, or half of a request, do not delay the end
// of the server, and the counts still reach Redis.
func TestSilentClientsAtTheEnd(t *testing.T) {
	t.Parallel() // it waits for handshakeTimeout
	redisServer := redistest.New(t)
	dir := write(t, t.TempDir(), "a.yaml", someRules)
	r := start(t, "-config", dir, "-redis", redisServer.Addr(), "-drain", "200ms")
	redistest.Eventually(t, 10*time.Second, "healthy", func() bool { return r.health() == healthpb.HealthCheckResponse_SERVING })
	r.ask("shop", 2, entry("user", "a"))
	for addr, text := range map[string]string{
		r.on.GRPC: "",
		r.on.HTTP: "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		r.get("/healthcheck") // the server has accepted the other connection by now
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	next := start(t, "-config", dir, "-redis", redisServer.Addr())
	if got := next.ask("shop", 1, entry("user", "a")).GetStatuses()[0].GetLimitRemaining(); got != 2 {
		t.Errorf("%d units are left of 5 after 3", got)
	}
}

// No client can hold a connection of the pages for ever.
func TestHTTPTimeouts(t *testing.T) {
	s := httpServer(nil)
	for name, d := range map[string]time.Duration{
		"header": s.ReadHeaderTimeout, "read": s.ReadTimeout, "write": s.WriteTimeout, "idle": s.IdleTimeout,
	} {
		if d <= 0 || d > time.Minute {
			t.Errorf("%s: %v", name, d)
		}
	}
}
