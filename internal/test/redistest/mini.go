package redistest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// Mini starts a miniredis on a free loopback port and closes it when the test ends. Its TTLs change only by
// FastForward. Its scripts run faster than on a plain miniredis, until SetError, Restart or SetPreHook of its server.
func Mini(tb TB) *miniredis.Miniredis {
	tb.Helper()
	mini := miniredis.RunT(tb)
	install(mini, nil)
	return mini
}

// Bubble is a miniredis that lives inside a testing/synctest bubble: no sockets, and expiry on the bubble's clock.
//
// Rules and limits:
//   - PoolSize must be at least the number of callers. go-redis keeps the timers of callers that wait for a connection
//     in a package-level pool. The next bubble of the process would fail on such a timer.
//   - Never sleep in a miniredis hook on a command that Lua calls: the command holds miniredis' mutex, and the clock
//     stops. Use [Bubble.Link] for latency.
//   - Expiry checks every key when the clock has moved: 3 ms for 10 000 keys. With more than a few hundred keys, turn
//     it off (Mini.ClockTTL(false)) and use Mini.FastForward.
//   - Events at the same virtual instant have no fixed order. Give the processes of a fleet distinct phases.
//   - go-redis detects a dead idle socket, but not a dead idle in-memory connection: the next command on it costs one
//     retry.
//   - Scripts run faster than on a plain miniredis, until SetError of Mini or SetPreHook of its server. Use
//     [Bubble.SetPreHook] for hooks.
type Bubble struct {
	// Mini is the server, for example for SetError, FastForward and SetTime. It does not listen: connect with Client,
	// Dial or Link.
	Mini *miniredis.Miniredis

	server *server.Server // Mini.Server() may not be called while Mini closes

	mu      sync.Mutex
	idle    sync.Cond // signalled when served or dialing shrinks
	dialing int       // connections that the server has not counted yet
	served  map[*servedConn]struct{}
	clients []*redis.Client
	links   []*MemLink
	down    bool
	closed  bool
}

// NewBubble starts a server. It must be called inside the bubble. Close runs when the bubble's test ends, or earlier if
// called.
func NewBubble(tb TB) *Bubble {
	tb.Helper()
	b := &Bubble{Mini: miniredis.NewMiniRedis(), served: make(map[*servedConn]struct{})}
	b.idle.L = &b.mu
	// Only Dial starts a miniredis without a listener.
	first, err := b.Mini.Dial()
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	first.Close()
	b.server = b.Mini.Server()
	b.SetPreHook(nil)
	b.Mini.ClockTTL(true)
	tb.Cleanup(b.Close)
	return b
}

// SetPreHook sets a hook that runs before each command, as SetPreHook of the server does. Scripts stay fast.
func (b *Bubble) SetPreHook(hook server.Hook) { install(b.Mini, hook) }

// Dial connects to the server. While the server is down, the error is that of a refused TCP connection.
func (b *Bubble) Dial(context.Context) (net.Conn, error) {
	client, near := memPipe()
	served := &servedConn{memConn: near, bubble: b}
	b.mu.Lock()
	if b.down || b.closed {
		b.mu.Unlock()
		return nil, refused()
	}
	b.served[served] = struct{}{}
	b.dialing++
	b.mu.Unlock()
	// Without mu: servedConn.Close takes mu while the server holds a lock.
	b.server.ServeConn(served)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dialing--
	b.idle.Broadcast()
	return client, nil
}

// Client returns a client of the server, without latency or faults, closed by [Bubble.Close]. opts, if not nil, changes
// its options. They are the defaults of go-redis except for PoolSize 64, the address, no maintenance notifications, and
// one dial. By default, go-redis dials five times and continues in the background for half a second, and no goroutine
// may outlive its bubble.
func (b *Bubble) Client(opts func(*redis.Options)) *redis.Client {
	return b.client(b.Dial, opts)
}

func (b *Bubble) client(dial func(context.Context) (net.Conn, error), opts func(*redis.Options)) *redis.Client {
	o := &redis.Options{
		// The address is an IP and is never dialled. A name would be resolved by goroutines outside the bubble, which
		// makes the process panic.
		Addr:                     "127.0.0.1:1",
		PoolSize:                 64,
		DialerRetries:            1,
		MaintNotificationsConfig: noMaintNotifications(),
		Dialer:                   func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	if opts != nil {
		opts(o)
	}
	c := redis.NewClient(o)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients = append(b.clients, c)
	return c
}

// Kill ends the server as SIGKILL would: every connection is reset, requests that the server has not read are lost, and
// new connections are refused. It returns when the last command that was read has been executed. miniredis does not
// notice that the client of a blocking command has gone, so such a command lasts for its whole time-out.
func (b *Bubble) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = true
	for c := range b.served {
		c.SetLinger(0)
		c.memConn.Close()
	}
	for len(b.served) > 0 {
		b.idle.Wait()
	}
}

// Restart starts the server again, empty and without scripts. It calls Kill first. It panics while SetError or a
// password is in force on Mini, because miniredis forgets its scripts only by command.
func (b *Bubble) Restart() {
	b.Kill()
	b.Mini.FlushAll()
	var reply bytes.Buffer
	peer := server.NewPeer(bufio.NewWriter(&reply))
	b.server.Dispatch(peer, []string{"SCRIPT", "FLUSH"})
	peer.Flush()
	if reply.String() != "+OK\r\n" {
		panic(fmt.Sprintf("redistest: Restart: SCRIPT FLUSH: %q", reply.String()))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = false
}

// Close closes the clients and links that came from b, then the server, and waits for their goroutines. It is
// idempotent.
func (b *Bubble) Close() {
	b.mu.Lock()
	clients, links := b.clients, b.links
	b.clients, b.links = nil, nil
	b.closed = true
	for b.dialing > 0 { // the server would count a connection too late that comes during its Close
		b.idle.Wait()
	}
	b.mu.Unlock()
	for _, c := range clients {
		c.Close()
	}
	for _, l := range links {
		l.close()
	}
	b.Mini.Close()
	// If a test has set DialerRetries, go-redis repeats a failed dial in the background, with pauses of 0.1 s, and does
	// not stop when the client is closed. A bubble may not end before its goroutines.
	time.Sleep(time.Second)
}

// servedConn is removed from its bubble's list when the server closes it, which is after its last command.
type servedConn struct {
	*memConn
	bubble *Bubble
}

func (c *servedConn) Close() error {
	err := c.memConn.Close()
	c.bubble.mu.Lock()
	defer c.bubble.mu.Unlock()
	delete(c.bubble.served, c)
	c.bubble.idle.Broadcast()
	return err
}
