package main

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
)

// link is the connection of one process to the store. Its connections behave according to the condition of the store,
// and stand still while the process is paused.
type link struct {
	store *store
	to    dialer

	mu     sync.Mutex
	paused bool
	ended  bool
	conns  map[*faulty]struct{}
}

func newLink(s *store) *link {
	l := &link{store: s, to: s.dial, conns: map[*faulty]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[l] = struct{}{}
	return l
}

// dial is the dialer for redis.Options.
func (l *link) dial(ctx context.Context) (net.Conn, error) {
	if l.refuses() {
		return nil, refused()
	}
	conn, err := l.to(ctx)
	if err != nil {
		return nil, err
	}
	c := &faulty{Conn: conn, link: l, closed: make(chan struct{})}
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	// A reset during the dial has missed this connection, because it was not registered yet.
	if l.refuses() {
		c.Close()
		return nil, refused()
	}
	return c, nil
}

func (l *link) refuses() bool {
	state, _ := l.store.condition()
	l.mu.Lock()
	defer l.mu.Unlock()
	return state == redisDead || l.ended
}

// pause holds back everything that is sent from now on, until resume.
func (l *link) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = true
}

func (l *link) resume() {
	l.mu.Lock()
	l.paused = false
	l.mu.Unlock()
	l.release()
}

// holds reports whether data that is sent now is held back, and otherwise its delay.
func (l *link) holds() (hold bool, delay time.Duration) {
	state, delay := l.store.condition()
	l.mu.Lock()
	defer l.mu.Unlock()
	if state != redisSlow {
		delay = 0
	}
	return l.paused || state == redisHung, delay
}

func (l *link) all() []*faulty {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*faulty, 0, len(l.conns))
	for c := range l.conns {
		all = append(all, c)
	}
	return all
}

// reset ends all connections. Data that was held back is lost.
func (l *link) reset() {
	for _, c := range l.all() {
		c.Close()
	}
}

// release sends the data that was held back, unless it still must be.
func (l *link) release() {
	for _, c := range l.all() {
		c.release()
	}
}

// cut ends the link permanently.
func (l *link) cut() {
	l.store.mu.Lock()
	delete(l.store.links, l)
	l.store.mu.Unlock()
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.reset()
}

// faulty is a connection of a link. It holds back requests. So Redis does not answer them, and executes them when it
// continues, like a stopped server.
type faulty struct {
	net.Conn
	link *link

	mu       sync.Mutex // also held during writes to Conn, to keep them in order
	held     []byte
	deadline time.Time

	once   sync.Once
	closed chan struct{}
}

// maxHeld is the most bytes that a connection holds back. go-redis sends one command and waits for its answer.
const maxHeld = 1 << 20

func (c *faulty) Write(p []byte) (int, error) {
	if _, delay := c.link.holds(); delay > 0 {
		if err := c.wait(delay); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Checked with c.mu held, because otherwise a release could come in between and miss these bytes.
	if hold, _ := c.link.holds(); hold || len(c.held) > 0 {
		if len(c.held)+len(p) > maxHeld {
			return 0, os.ErrDeadlineExceeded
		}
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// wait waits for d, the write's deadline or the end, whichever is first.
func (c *faulty) wait(d time.Duration) error {
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	late := !deadline.IsZero() && time.Until(deadline) < d
	if late {
		d = time.Until(deadline)
	}
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-c.closed:
		return net.ErrClosed
	case <-t.C:
	}
	if late {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *faulty) release() {
	if hold, _ := c.link.holds(); hold {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held) > 0 {
		c.Conn.SetWriteDeadline(time.Now().Add(time.Second)) // the waiting caller may have gone
		c.Conn.Write(c.held)
		c.held = nil
	}
}

// SetDeadline also records when a write must give up.
func (c *faulty) SetDeadline(t time.Time) error {
	c.note(t)
	return c.Conn.SetDeadline(t)
}

func (c *faulty) SetWriteDeadline(t time.Time) error {
	c.note(t)
	return c.Conn.SetWriteDeadline(t)
}

func (c *faulty) note(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
}

func (c *faulty) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
