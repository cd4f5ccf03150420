package redistest

import (
	"context"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// MemLink is a [Link] between one client and the Redis of a bubble, in virtual time.
type MemLink struct {
	*Link
	bubble *Bubble
	refuse bool // guarded by Link.mu
}

// Link returns a new link to the server, healthy and without latency, closed by [Bubble.Close].
func (b *Bubble) Link() *MemLink {
	l := &MemLink{Link: newLink(b.Dial), bubble: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.links = append(b.links, l)
	return l
}

// Client returns a client whose connections all go over the link; otherwise it is that of [Bubble.Client].
func (l *MemLink) Client(opts func(*redis.Options)) *redis.Client {
	return l.bubble.client(l.Dial, opts)
}

// Dial opens a connection over the link. It takes the latency of a round trip, as a TCP handshake does.
func (l *MemLink) Dial(ctx context.Context) (net.Conn, error) {
	request, reply := l.latency()
	if d := request + reply; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, dialError(ctx.Err())
		case <-l.ctx.Done():
			return nil, dialError(errLinkClosed)
		}
	}
	l.mu.Lock()
	refuse := l.refuse
	l.mu.Unlock()
	if refuse {
		return nil, refused()
	}
	server, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	client, near := memPipe()
	if err := l.carry(near, server); err != nil {
		return nil, dialError(err)
	}
	return client, nil
}

// Refuse makes new connections fail with ECONNREFUSED, as if no Redis listens, until it is called with false. Existing
// connections stay open; see [Link.CutAll].
func (l *MemLink) Refuse(refuse bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = refuse
}

// dialError wraps an error as net does. go-redis retries after an error of the operation "dial".
func dialError(err error) error {
	return &net.OpError{Op: "dial", Net: "mem", Addr: memAddr("server"), Err: err}
}

func refused() error {
	return dialError(os.NewSyscallError("connect", syscall.ECONNREFUSED))
}
