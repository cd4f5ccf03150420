package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy is a [Link] over TCP: it listens on a loopback port of its own and
// forwards whole requests and replies to a Redis, failing as told. Address the
// Redis through [Proxy.Addr].
//
// CLIENT REPLY OFF and SKIP are not understood: a reply that never comes would
// be waited for.
type Proxy struct {
	*Link
	addr string

	lifecycle sync.Mutex // serialises Refuse and Close
	listener  net.Listener
	accepting sync.WaitGroup
}

// dialTimeout bounds the proxy's own connection to its Redis. The kernel
// answers for a stopped process, so only a foreign host could take long.
const dialTimeout = 5 * time.Second

// StartProxy starts a proxy in front of the Redis at target ("host:port"). The
// target need not be there yet: each client connection dials it anew, and is
// reset when that fails.
func StartProxy(target string) (*Proxy, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	p := &Proxy{Link: newLink(func(ctx context.Context) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", target)
	})}
	if err := p.listen("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("redistest: proxy: %w", err)
	}
	p.addr = p.listener.Addr().String()
	return p, nil
}

// NewProxy is [StartProxy] for a test: it fails the test on an error, and
// closes the proxy when the test ends.
func NewProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p, err := StartProxy(target)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Addr is where clients connect ("127.0.0.1:port"). It stays the same for life.
func (p *Proxy) Addr() string { return p.addr }

// Client returns a client of the Redis behind the proxy; see [Client].
func (p *Proxy) Client(tb TB, opts ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return Client(tb, p.addr, opts...)
}

// Refuse makes new connections fail with ECONNREFUSED, as when no Redis
// listens, until it is called with false. Connections that exist live on; see
// [Link.CutAll]. The error is nil unless another process took the port while it
// was refusing.
func (p *Proxy) Refuse(refuse bool) error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	if refuse {
		p.unlisten()
		return nil
	}
	if p.listener != nil {
		return nil
	}
	var err error
	if !poll(bindPatience, func() bool {
		err = p.listen(p.addr)
		return !errors.Is(err, syscall.EADDRINUSE)
	}) || err != nil {
		return fmt.Errorf("redistest: proxy: %w", err)
	}
	return nil
}

// Close ends the proxy and its connections and waits for its goroutines. It is
// idempotent.
func (p *Proxy) Close() {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.cancel() // or unlisten would wait for a dial in progress
	p.unlisten()
	p.close()
}

func (p *Proxy) listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.accepting.Go(func() { p.accept(l) })
	return nil
}

func (p *Proxy) unlisten() {
	if p.listener != nil {
		p.listener.Close()
		p.accepting.Wait()
		p.listener = nil
	}
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed; anything else on loopback would be final too
		}
		// Dialled here and not in a goroutine of its own, which Close would
		// have to wait for: on loopback a dial is answered at once.
		server, err := p.dial(p.ctx)
		if err != nil {
			client.(*net.TCPConn).SetLinger(0)
			client.Close()
			continue
		}
		p.carry(client, server) // an error means closed, and has closed both
	}
}
