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

// condition is what the Redis of the fleet is up to, as far as its processes
// can tell.
type condition string

const (
	redisUp   condition = "up"
	redisDead condition = "dead" // connections are reset, and refused
	redisHung condition = "hung" // it takes commands and does not answer
	redisSlow condition = "slow" // each command takes longer
)

// store is the Redis of the fleet: miniredis in this program, or yours. Faults
// happen on the connections to it (see link), so that one that is yours comes
// to no harm: "killed" it only cannot be reached. The embedded one has lost its
// memory when it comes back, as a real one without persistence.
type store struct {
	opts   *redis.Options // nil: embedded
	prefix string         // of all keys, new for each run

	mu    sync.Mutex
	mini  *miniredis.Miniredis // embedded; nil while dead
	state condition
	delay time.Duration // of each command while slow
	links map[*link]struct{}

	admin *redis.Client // past all faults
}

func newStore(opts *redis.Options) *store {
	s := &store{opts: opts, prefix: "playground-" + rand.Text()[:10], state: redisUp, links: map[*link]struct{}{}}
	if opts == nil {
		s.mini = newMini()
	}
	s.admin = redis.NewClient(s.options(s.dial))
	return s
}

func newMini() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // keys expire as time passes, as in a real one
	return m
}

// name is for people.
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
	s.mu.Lock()
	mini := s.mini
	s.mini = nil
	s.mu.Unlock()
	if mini != nil {
		mini.Close()
	}
}

type dialer func(ctx context.Context) (net.Conn, error)

// options are a client's whose connections come from dial.
func (s *store) options(dial dialer) *redis.Options {
	o := &redis.Options{Addr: "127.0.0.1:1"} // an address asks no resolver; nobody dials it
	if s.opts != nil {
		copied := *s.opts
		o = &copied
	}
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1 // go-redis dials on in the background, after Close too
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}

// dial connects, whatever the fleet's condition. A dead embedded one refuses.
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

// refused is the error of a connection to a port that nobody listens on.
func refused() error { return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED} }

// set changes the condition. Dead, connections are reset; out of hung, what was
// held back goes on its way.
func (s *store) set(c condition, delay time.Duration) {
	s.mu.Lock()
	was := s.state
	s.state, s.delay = c, delay
	var gone *miniredis.Miniredis
	if s.opts == nil {
		switch {
		case c == redisDead:
			gone, s.mini = s.mini, nil
		case s.mini == nil:
			s.mini = newMini()
		}
	}
	links := make([]*link, 0, len(s.links))
	for l := range s.links {
		links = append(links, l)
	}
	s.mu.Unlock()
	for _, l := range links {
		switch {
		case c == redisDead:
			l.reset()
		case was == redisHung && c != redisHung:
			l.release()
		}
	}
	if gone != nil {
		gone.Close()
	}
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
