package circuit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/circuit"
)

// checkClass classifies err alone and as callers wrap it.
func checkClass(t *testing.T, err error, want circuit.Class) {
	t.Helper()
	for _, err := range []error{
		err,
		fmt.Errorf("sync of 3 keys: %w", err),
		fmt.Errorf("%w: %w", hybridlimit.ErrUnavailable, err),
		errors.Join(err),
	} {
		if got := circuit.Classify(err); got != want {
			t.Errorf("Classify(%T: %v) = %v, want %v", err, err, got, want)
		}
	}
}

// TestClassify checks errors that arise without a server.
func TestClassify(t *testing.T) {
	if got := circuit.Classify(nil); got != circuit.Success {
		t.Errorf("Classify(nil) = %v", got)
	}
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("user went home"))
	expired, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	_, dialCancelled := new(net.Dialer).DialContext(cancelled, "tcp", "127.0.0.1:1")
	_, dialExpired := new(net.Dialer).DialContext(expired, "tcp", "127.0.0.1:1")

	for _, test := range []struct {
		name string
		err  error
		want circuit.Class
	}{
		{"no such key", redis.Nil, circuit.Success},
		{"no script", redis.ErrNoScript, circuit.Ignored},
		{"caller cancelled", cancelled.Err(), circuit.Ignored},
		{"caller cancelled a dial", dialCancelled, circuit.Ignored},
		{"deadline", expired.Err(), circuit.Failure},
		{"deadline of a dial", dialExpired, circuit.Failure},
		{"deadline of a connection", os.ErrDeadlineExceeded, circuit.Failure},
		{"deadline and cancelled", errors.Join(context.Canceled, context.DeadlineExceeded), circuit.Failure},
		{"EOF", io.EOF, circuit.Failure},
		{"EOF amid a reply", io.ErrUnexpectedEOF, circuit.Failure},
		{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, circuit.Failure},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, circuit.Failure},
		{"no such host", &net.DNSError{Err: "no such host"}, circuit.Failure},
		{"pool time-out", redis.ErrPoolTimeout, circuit.Failure},
		{"pool exhausted", redis.ErrPoolExhausted, circuit.Failure},
		{"client closed", redis.ErrClosed, circuit.Failure},
		{"keys in several slots", redis.ErrCrossSlot, circuit.Failure},
		{"who knows", errors.New("who knows"), circuit.Failure},
		{"text that only looks like a reply", errors.New("NOSCRIPT No matching script"), circuit.Failure},
	} {
		t.Run(test.name, func(t *testing.T) { checkClass(t, test.err, test.want) })
	}
}

// TestClassifyReplies checks every error reply, as go-redis returns it. go-redis has types
// for some of them.
func TestClassifyReplies(t *testing.T) {
	replies := map[circuit.Class][]string{
		circuit.Success: {"_", "$-1", "+OK", ":1"},
		circuit.Ignored: {
			"-NOSCRIPT No matching script. Please use EVAL.",
			"-ERR NOSCRIPT No matching script. Please use EVAL.", // KVRocks
			"-ERR Function not found",
			"-MOVED 3999 127.0.0.1:6381",
			"-ASK 3999 127.0.0.1:6381",
			"-TRYAGAIN Multiple keys request during rehashing of slot",
		},
		circuit.Failure: {
			"-LOADING Redis is loading the dataset in memory",
			"-READONLY You can't write against a read only replica.",
			"-ERR Error running script (call to f_0): @user_script:1: -READONLY You can't write against a read only replica.", // Redis 6
			"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
			"-CLUSTERDOWN The cluster is down",
			"-CLUSTERDOWN Hash slot not served",
			"-CROSSSLOT Keys in request don't hash to the same slot",
			"-OOM command not allowed when used memory > 'maxmemory'.",
			"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
			"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
			"-NOREPLICAS Not enough good replicas to write.",
			"-NOAUTH Authentication required.",
			"-WRONGPASS invalid username-password pair or user is disabled.",
			"-NOPERM this user has no permissions to run the 'evalsha' command",
			"-ERR max number of clients reached",
			"-ERR unknown command 'FCALL'",
			"-WRONGTYPE Operation against a key holding the wrong kind of value",
			"-UNKILLABLE Sorry the script already executed write commands",
			"-REDIRECT 127.0.0.1:6381", // Valkey
			"-NOSCRIPTS are not a code of Redis",
			"-MOVEDX 1",
			"-ERR",
			"-",
			"?what is this",
		},
	}
	for class, lines := range replies {
		for _, line := range lines {
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				c := client(t, fakeRedis{reply: say(line)}.start(t))
				err := c.Do(t.Context(), "EVALSHA", "0", "0").Err()
				if strings.HasPrefix(line, "-") && (err == nil || err.Error() != line[1:]) {
					t.Fatalf("go-redis made %q of %q", err, line)
				}
				if err == nil {
					return // a Success
				}
				checkClass(t, err, class)
				_, err = c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
					p.Do(t.Context(), "EVALSHA", "0", "0")
					return nil
				})
				checkClass(t, err, class)
			})
		}
	}
}

// TestClassifyTransport checks errors of the network and the pool, as go-redis returns
// them.
func TestClassifyTransport(t *testing.T) {
	soon := func(o *redis.Options) { o.ReadTimeout = 10 * time.Millisecond }
	get := func(ctx context.Context, c *redis.Client) error { return c.Get(ctx, "k").Err() }
	for _, test := range []struct {
		name   string
		server fakeRedis
		adjust func(*redis.Options)
		ask    func(ctx context.Context, c *redis.Client) error
		want   circuit.Class
		text   string // in the error
	}{
		{"hangs up", fakeRedis{reply: hangUp}, nil, get, circuit.Failure, "EOF"},
		{"hangs up amid a reply", fakeRedis{reply: func(c net.Conn) { say("$10\r\nhalf")(c); hangUp(c) }}, nil, get, circuit.Failure, "EOF"},
		{"resets", fakeRedis{reply: reset}, nil, get, circuit.Failure, ""}, // some kernels and sandboxes turn it into EOF
		{"is silent", fakeRedis{reply: silence}, soon, get, circuit.Failure, "i/o timeout"},
		{"is silent until the deadline", fakeRedis{reply: silence}, nil, func(ctx context.Context, c *redis.Client) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			return get(ctx, c)
		}, circuit.Failure, ""},
		{"is silent from the start", fakeRedis{greet: silence}, soon, get, circuit.Failure, "timeout"},
		{
			"has too many clients",
			fakeRedis{greet: func(c net.Conn) { say("-ERR max number of clients reached")(c); hangUp(c) }, reply: hangUp},
			nil, get, circuit.Failure, "",
		},
		{
			"wants a password",
			fakeRedis{greet: say("-NOAUTH HELLO must be called with the client already authenticated"), reply: say("-NOAUTH Authentication required.")},
			nil, get, circuit.Failure, "NOAUTH",
		},
		{
			"is loading",
			fakeRedis{greet: say("-LOADING Redis is loading the dataset in memory"), reply: say("-LOADING Redis is loading the dataset in memory")},
			nil, get, circuit.Failure, "LOADING",
		},
		{"caller cancelled before", fakeRedis{reply: say("+OK")}, nil, func(ctx context.Context, c *redis.Client) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return get(ctx, c)
		}, circuit.Ignored, "canceled"},
		{
			"caller cancelled while waiting for the pool",
			fakeRedis{reply: silence},
			func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, time.Minute },
			func(ctx context.Context, c *redis.Client) error {
				hog := c.Conn()
				defer hog.Close()
				_ = hog.ClientSetName(ctx, "hog").Err() // takes the only connection
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(5*time.Millisecond, cancel)
				return get(ctx, c)
			}, circuit.Ignored, "canceled",
		},
		{
			"pool is empty",
			fakeRedis{reply: silence},
			func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 5*time.Millisecond },
			func(ctx context.Context, c *redis.Client) error {
				hog := c.Conn()
				defer hog.Close()
				_ = hog.ClientSetName(ctx, "hog").Err()
				return get(ctx, c)
			}, circuit.Failure, "pool timeout",
		},
		{"client is closed", fakeRedis{reply: silence}, nil, func(ctx context.Context, c *redis.Client) error {
			_ = c.Close()
			return get(ctx, c)
		}, circuit.Failure, "closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			adjust := test.adjust
			if adjust == nil {
				adjust = func(*redis.Options) {}
			}
			c := client(t, test.server.start(t), adjust)
			err := test.ask(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Fatalf("error = %v, want one that contains %q", err, test.text)
			}
			t.Logf("%T: %v", err, err)
			checkClass(t, err, test.want)
		})
	}
	t.Run("is not there", func(t *testing.T) {
		for range 20 { // another process may take the port
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Close()
			if err = get(t.Context(), client(t, l.Addr().String())); err != nil {
				checkClass(t, err, circuit.Failure)
				return
			}
		}
		t.Fatal("another process took each of 20 ports")
	})
}
