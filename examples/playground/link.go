package main

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
)

// link is one process's way to the store. Its connections do what the store's
// condition says, and stand still while the process is paused.
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

// dial is for redis.Options.
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
	// What happened while it was dialled has not reset it: it was not there.
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

// pause holds back what is sent from now on, until resume.
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

// holds says whether what is sent now is held back, and how late it is else.
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

// reset ends all connections. What was held back is lost.
func (l *link) reset() {
	for _, c := range l.all() {
		c.Close()
	}
}

// release sends what was held back, where nothing holds it any more.
func (l *link) release() {
	for _, c := range l.all() {
		c.release()
	}
}

// cut ends the link for good.
func (l *link) cut() {
	l.store.mu.Lock()
	delete(l.store.links, l)
	l.store.mu.Unlock()
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.reset()
}

// faulty is a connection of a link. Requests are what it holds back: Redis then
// answers nothing, and executes them when it goes on, as one that was stopped.
type faulty struct {
	net.Conn
	link *link

	mu       sync.Mutex // also over writes to Conn, which keeps them in order
	held     []byte
	deadline time.Time

	once   sync.Once
	closed chan struct{}
}

// maxHeld is how much a connection holds back, in bytes: go-redis sends one
// command and waits for its answer.
const maxHeld = 1 << 20

func (c *faulty) Write(p []byte) (int, error) {
	if _, delay := c.link.holds(); delay > 0 {
		if err := c.wait(delay); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Asked with c.mu held, or a release could come in between and miss this.
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
		c.Conn.SetWriteDeadline(time.Now().Add(time.Second)) // whoever waited may have gone
		c.Conn.Write(c.held)
		c.held = nil
	}
}

// SetDeadline and SetWriteDeadline note when a write has to give up.
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
