package tell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// reply is an error that Redis answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

var _ redis.Error = reply("")

func TestErrorTypes(t *testing.T) {
	for _, c := range []struct {
		err         error
		class, code string
	}{
		{context.DeadlineExceeded, "timeout", ""},
		{fmt.Errorf("dial: %w", context.Canceled), "canceled", ""},
		{fmt.Errorf("run: %w", reply("OOM command not allowed")), "OOM", "OOM"},
		{fmt.Errorf("%w: nothing", wire.ErrReply), "unreadable_reply", ""},
		{fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), "connection_refused", ""},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, "connection_reset", ""},
		{&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, "connection_reset", ""},
		{fmt.Errorf("run: %w", io.EOF), "connection_closed", ""},
		{fmt.Errorf("run: %w", io.ErrUnexpectedEOF), "connection_closed", ""},
		{&net.OpError{Op: "read", Err: net.ErrClosed}, "connection_closed", ""},
		{redis.ErrPoolTimeout, "pool_timeout", ""},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "cache", IsNotFound: true}}, "name_resolution", ""},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "timeout", ""},
		{fmt.Errorf("%w (%w)", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, context.DeadlineExceeded), "connection_refused", ""},
		{errors.New("connection refused by 10.0.0.1"), "_OTHER", ""},
	} {
		if class, code := errorType(c.err); class != c.class || code != c.code {
			t.Errorf("%v: %q, %q", c.err, class, code)
		}
	}
}

// TestServerOfSpans checks the attributes of the server of a client with one server. A Unix socket
// has no port. A cluster has no such attributes.
func TestServerOfSpans(t *testing.T) {
	for addr, want := range map[string]string{
		"cache.internal:6380":   "db.namespace=3 server.address=cache.internal server.port=6380 ",
		"/var/run/redis.sock":   "db.namespace=3 server.address=/var/run/redis.sock ",
		"[2001:db8::1]:6379":    "db.namespace=3 server.address=2001:db8::1 server.port=6379 ",
		"cache.internal:redis0": "db.namespace=3 server.address=cache.internal ",
	} {
		rdb := redis.NewClient(&redis.Options{Addr: addr, DB: 3})
		got := ""
		for _, kv := range server(rdb) {
			got += string(kv.Key) + "=" + kv.Value.String() + " "
		}
		if got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
		rdb.Close()
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	if got := server(cluster); got != nil {
		t.Errorf("of a cluster: %v", got)
	}
}
