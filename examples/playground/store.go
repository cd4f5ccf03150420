package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// condition is the state of Redis, as the fleet's processes see it.
type condition string

const (
	redisUp   condition = "up"
	redisDead condition = "dead" // connections are reset, and new ones refused
	redisHung condition = "hung" // it accepts commands and does not answer
	redisSlow condition = "slow" // each command takes longer
)

// store is the Redis of the fleet: miniredis in this program, or the user's Redis. Faults are injected on the
// connections to it (see link), so that the user's Redis is not harmed: if "killed", it only cannot be reached. The
// embedded Redis loses its memory when it is killed, like a real one without persistence.
type store struct {
	opts   *redis.Options // nil: embedded
	prefix string         // prefix of all keys, new for each run

	mu      sync.Mutex
	mini    *miniredis.Miniredis // the embedded Redis; nil while it is dead
	state   condition
	delay   time.Duration        // of each command while slow
	conns   map[*faulty]struct{} // of all links
	changed chan struct{}        // closed and replaced with each change of state, and of a link

	admin *redis.Client // bypasses all faults
}

func newStore(opts *redis.Options) *store {
	s := &store{
		opts: opts, prefix: "playground-" + rand.Text()[:10], conns: map[*faulty]struct{}{}, changed: make(chan struct{}),
	}
	s.set(redisUp, 0)
	s.admin = redis.NewClient(s.options(s.dial))
	return s
}

func newMini() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // keys expire as time passes, as in a real Redis
	return m
}

// name returns a name for the page.
func (s *store) name() string {
	if s.opts == nil {
		return "embedded (miniredis)"
	}
	return s.opts.Addr
}

func (s *store) embedded() bool { return s.opts == nil }

func (s *store) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.admin.Ping(ctx).Err()
}

func (s *store) close() {
	s.admin.Close()
	s.set(redisDead, 0)
}

type dialer func(ctx context.Context) (net.Conn, error)

// options returns the options of a client whose connections come from dial.
func (s *store) options(dial dialer) *redis.Options {
	o := &redis.Options{Addr: "127.0.0.1:1"} // an IP address needs no resolver; nothing dials it
	if s.opts != nil {
		copied := *s.opts
		o = &copied
	}
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1 // otherwise go-redis dials in the background, also after Close
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}

// dial connects, and ignores the condition. A dead embedded Redis refuses.
func (s *store) dial(ctx context.Context) (net.Conn, error) {
	if s.opts == nil {
		s.mu.Lock()
		mini := s.mini
		s.mu.Unlock()
		if mini == nil {
			return nil, refused()
		}
		return mini.Dial()
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, s.opts.Network, s.opts.Addr)
	if err != nil || s.opts.TLSConfig == nil {
		return conn, err
	}
	return tls.Client(conn, s.opts.TLSConfig), nil
}

// refused returns the error of a connection to a port without a listener.
func refused() error { return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED} }

// set changes the condition. It resets the connections if Redis is now dead.
func (s *store) set(c condition, delay time.Duration) {
	s.mu.Lock()
	s.state, s.delay = c, delay
	var gone *miniredis.Miniredis
	switch {
	case s.opts != nil:
	case c == redisDead:
		gone, s.mini = s.mini, nil
	case s.mini == nil:
		s.mini = newMini()
	}
	s.wake()
	s.mu.Unlock()
	if c == redisDead {
		s.reset(nil)
	}
	if gone != nil {
		gone.Close()
	}
}

// wake tells the connections that a condition may have changed. It is called with s.mu held.
func (s *store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// reset ends the connections of a link, or of all links if it is nil.
func (s *store) reset(l *link) {
	for _, c := range s.open(l) {
		c.Close()
	}
}

func (s *store) open(l *link) (all []*faulty) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if l == nil || c.link == l {
			all = append(all, c)
		}
	}
	return all
}

func (s *store) condition() (condition, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.delay
}

// wipe deletes everything that the fleet has in Redis, and nothing else.
func (s *store) wipe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	keys := s.admin.Scan(ctx, 0, s.prefix+"*", 1000).Iterator()
	var doomed []string
	for keys.Next(ctx) {
		doomed = append(doomed, keys.Val())
	}
	if err := keys.Err(); err != nil {
		return fmt.Errorf("wipe: %w", err)
	}
	if len(doomed) == 0 {
		return nil
	}
	return s.admin.Del(ctx, doomed...).Err()
}
