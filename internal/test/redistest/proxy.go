package redistest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy is a [Link] over TCP. It listens on its own loopback port and forwards whole requests and replies, with the
// faults of its script. Clients connect to [Proxy.Addr].
//
// CLIENT REPLY OFF and SKIP are not supported: the proxy would wait for a reply that never comes.
type Proxy struct {
	*Link
	ports ports

	lifecycle sync.Mutex // serialises Refuse and Close
	listener  net.Listener
	accepting sync.WaitGroup
}

// dialTimeout bounds the proxy's dial to its Redis. The kernel accepts connections for a stopped process, so only
// another host could take long.
const dialTimeout = 5 * time.Second

// NewProxy starts a proxy in front of the Redis at target ("host:port"), and closes it when the test ends. The target
// need not exist yet. The proxy dials it for each client connection, and resets the connection if the dial fails.
func NewProxy(tb TB, target string) *Proxy {
	tb.Helper()
	dialer := &net.Dialer{Timeout: dialTimeout}
	p := &Proxy{Link: newLink(func(ctx context.Context) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", target)
	})}
	var err error
	if p.ports, err = onPorts(false, p.listen); err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Addr returns the address for clients ("127.0.0.1:port"). It never changes.
func (p *Proxy) Addr() string { return loopback(p.ports.main.number) }

// Client returns a client of the Redis behind the proxy; see [Client].
func (p *Proxy) Client(tb TB, opts ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return Client(tb, p.Addr(), opts...)
}

// Refuse makes new connections fail with ECONNREFUSED, as if no Redis listens, until it is called with false. Existing
// connections stay open; see [Link.CutAll]. Only on systems other than Linux can another process take the port
// meanwhile, which is an error.
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
	return onHeld(func() error { return p.listen(p.ports.main.number) })
}

// Close ends the proxy and its connections and waits for its goroutines. It is idempotent.
func (p *Proxy) Close() {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.cancel() // otherwise unlisten would wait for a dial in progress
	p.unlisten()
	p.ports.release()
	p.close()
}

func (p *Proxy) listen(port int) error {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return fmt.Errorf("redistest: proxy: %w", err)
	}
	p.listener = l
	p.accepting.Go(func() { p.accept(l) })
	return nil
}

func (p *Proxy) unlisten() {
	if p.listener != nil {
		deafen(p.listener)
		p.accepting.Wait()
		p.listener = nil
	}
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed; any other error on loopback would be permanent as well
		}
		// The dial needs no separate goroutine, for which Close would have to wait: on loopback a dial is answered at
		// once.
		server, err := p.dial(p.ctx)
		if err != nil {
			client.(*net.TCPConn).SetLinger(0)
			client.Close()
			continue
		}
		p.carry(client, server) // after an error the proxy is closed, and so are both connections
	}
}
