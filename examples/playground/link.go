package main

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// link is the connection of one process to the store. Its connections behave according to the condition of the store,
// and stand still while the process is paused.
type link struct {
	store *store
	to    dialer

	paused, ended bool // guarded by store.mu
}

func newLink(s *store) *link { return &link{store: s, to: s.dial} }

// dial is the dialer for redis.Options.
func (l *link) dial(ctx context.Context) (net.Conn, error) {
	if l.refuses() {
		return nil, refused()
	}
	server, err := l.to(ctx)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := &faulty{Conn: near, far: far, server: server, link: l, closed: make(chan struct{})}
	l.store.mu.Lock()
	l.store.conns[c] = struct{}{}
	l.store.mu.Unlock()
	// A reset during the dial has missed this connection, because it was not registered yet.
	if l.refuses() {
		c.Close()
		return nil, refused()
	}
	go func() {
		defer c.Close()
		io.Copy(far, server)
	}()
	go c.forward()
	return c, nil
}

func (l *link) refuses() bool {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.state == redisDead || l.ended
}

// pause holds back everything that is sent from now on, until it is called with false.
func (l *link) pause(paused bool) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.paused = paused
	l.store.wake()
}

// cut ends the link permanently.
func (l *link) cut() {
	l.store.mu.Lock()
	l.ended = true
	l.store.mu.Unlock()
	l.store.reset(l)
}

// faulty is a connection of a link. It holds back requests. So Redis does not answer them, and executes them when it
// continues, like a stopped server. Requests of a connection that was closed meanwhile are lost.
type faulty struct {
	net.Conn             // the end of the client
	far, server net.Conn // forward copies from far to server
	link        *link

	once   sync.Once
	closed chan struct{}
}

// forward copies requests to the server. go-redis sends one command and waits for its answer.
func (c *faulty) forward() {
	defer c.Close()
	request := make([]byte, 32<<10)
	for {
		n, err := c.far.Read(request)
		if err != nil || !c.pass() {
			return
		}
		if _, err := c.server.Write(request[:n]); err != nil {
			return
		}
	}
}

// pass waits until a request may be sent. It returns false if the connection is closed before.
func (c *faulty) pass() bool {
	s := c.link.store
	if state, delay := s.condition(); state == redisSlow {
		late := time.NewTimer(delay)
		defer late.Stop()
		select {
		case <-late.C:
		case <-c.closed:
			return false
		}
	}
	for {
		s.mu.Lock()
		hold, changed := c.link.paused || s.state == redisHung, s.changed
		s.mu.Unlock()
		if !hold {
			return true
		}
		select {
		case <-changed:
		case <-c.closed:
			return false
		}
	}
}

// Close closes both sides, and drops a request that was held back.
func (c *faulty) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.link.store.mu.Lock()
		delete(c.link.store.conns, c)
		c.link.store.mu.Unlock()
		c.Conn.Close()
		c.far.Close()
		c.server.Close()
	})
	return nil
}
